# Says once that nothing is optimised.
include_guard(GLOBAL)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES AND NOT CMAKE_CXX_FLAGS MATCHES "-O[1-3sf]")
  message(WARNING "tessera: no build type is set, so programs are not optimised, and a product takes a thousand times "
    "as long. Configure with -DCMAKE_BUILD_TYPE=Release.")
endif()
