# tessera::native for a package of Conan, which defines tessera::tessera by itself: -march=native, as in CMakeLists.txt.
if(NOT TARGET tessera::native)
  add_library(tessera::native INTERFACE IMPORTED)
  target_compile_options(tessera::native INTERFACE -march=native)
  target_link_libraries(tessera::native INTERFACE tessera::tessera)
endif()
