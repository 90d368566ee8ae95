# tessera_add_variants(NAME SOURCES file… [VARIANTS set…] [TYPES type…])
# A library NAME of source files that are compiled once for each instruction set: baseline, avx2, avx512, avx512_bf16,
# avx512_amx. Functions that <tessera/core/dispatch.hpp> declares are chosen when the program runs. With TYPES, such as
# float_16x16, they may include <tessera/compiled.hpp>, which is then compiled for each instruction set, too.
include(${CMAKE_CURRENT_LIST_DIR}/tessera-compiled-types.cmake)

function(tessera_add_variants name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;VARIANTS;TYPES")
  if(NOT arg_SOURCES OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tessera_add_variants(${name} …): say SOURCES file… [VARIANTS set…] [TYPES type…]")
  endif()
  if(NOT CMAKE_OBJCOPY OR NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    message(FATAL_ERROR "tessera_add_variants(${name} …): needs objcopy, and an x86-64 CPU")
  endif()
  if(NOT arg_VARIANTS)
    set(arg_VARIANTS baseline avx2 avx512_bf16)
  endif()
  set(flags_baseline -march=x86-64)
  set(flags_avx2 -march=x86-64-v3)
  set(flags_avx512 -march=x86-64-v4)
  set(flags_avx512_bf16 ${flags_avx512} -mavx512bf16 -mavx512vnni)
  set(flags_avx512_amx ${flags_avx512_bf16} -mamx-tile -mamx-bf16 -mamx-int8)

  foreach(set IN LISTS arg_VARIANTS)
    if(NOT DEFINED flags_${set})
      message(FATAL_ERROR "tessera_add_variants(${name} …): there is no instruction set '${set}'; there are baseline "
        "avx2 avx512 avx512_bf16 avx512_amx")
    endif()
    list(APPEND definitions TESSERA_HAS_${set})
  endforeach()
  # A program that links two such libraries sees one list.
  get_property(earlier GLOBAL PROPERTY TESSERA_VARIANTS)
  if(earlier AND NOT "${earlier}" STREQUAL "${arg_VARIANTS}")
    message(FATAL_ERROR "tessera_add_variants(${name} …): another library has the variants ${earlier}; take the same")
  endif()
  set_property(GLOBAL PROPERTY TESSERA_VARIANTS ${arg_VARIANTS})

  set(compiled_sources "")
  if(arg_TYPES)
    tessera_compiled_types(${CMAKE_CURRENT_BINARY_DIR}/${name}_types ${arg_TYPES})
  endif()
  foreach(set IN LISTS arg_VARIANTS)
    set(objects ${name}_${set})
    add_library(${objects} OBJECT ${arg_SOURCES} ${compiled_sources})
    if(arg_TYPES)
      target_compile_definitions(${objects} PRIVATE TESSERA_COMPILED)
      target_include_directories(${objects} PRIVATE ${compiled_include_dirs})
    endif()
    target_link_libraries(${objects} PRIVATE tessera::tessera)
    target_compile_definitions(${objects} PRIVATE ${definitions})
    target_compile_options(${objects} PRIVATE ${flags_${set}} $<$<CXX_COMPILER_ID:GNU>:-fno-gnu-unique>)
    set_target_properties(${objects} PROPERTIES INTERPROCEDURAL_OPTIMIZATION OFF)
    # One object, whose functions are all local but the dispatched ones: a linker keeps one of several copies of an
    # inline function, and must not give code for any CPU the copy that needs AVX.
    set(together ${CMAKE_CURRENT_BINARY_DIR}/${objects}.o)
    add_custom_command(OUTPUT ${together}
      COMMAND ${CMAKE_LINKER} -r --force-group-allocation -o ${together}.all $<TARGET_OBJECTS:${objects}>
      COMMAND ${CMAKE_OBJCOPY} --wildcard --keep-global-symbol=*tessera_variants* ${together}.all ${together}
      DEPENDS ${objects} $<TARGET_OBJECTS:${objects}> COMMAND_EXPAND_LISTS VERBATIM)
    list(APPEND all ${together})
  endforeach()
  set_source_files_properties(${all} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  add_library(${name} STATIC ${all})
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX)
  target_link_libraries(${name} PUBLIC tessera::tessera)
  target_compile_definitions(${name} PUBLIC ${definitions})
endfunction()
