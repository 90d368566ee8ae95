# tessera_compiled_types(FOLDER type…)
# Makes in FOLDER what compiles <tessera/compiled.hpp> for some types, such as float_16x16. The list compiled_sources has
# then the source files: the first three have what is compiled once, each other one a type. What is compiled of them, or includes
# that header, defines TESSERA_COMPILED and has the include directories compiled_include_dirs.
function(tessera_compiled_types folder)
  foreach(dir "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../src" "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/src")  # of a checkout; installed
    if(EXISTS ${dir}/once.cpp)
      cmake_path(SET source_dir NORMALIZE ${dir})
    endif()
  endforeach()
  set(sources ${source_dir}/bodies.cpp ${source_dir}/ipu_bodies.cpp ${source_dir}/once.cpp)
  set(each "")
  foreach(type IN LISTS ARGN)
    if(NOT type MATCHES "^(float|double|bfloat16|float16|float8|int8)_(1x1|4x4|8x8|16x16)$")
      message(FATAL_ERROR "tessera: there is no compiled type '${type}', but float_, double_, bfloat16_, float16_, float8_ "
        "and int8_ with 1x1, 4x4, 8x8 and 16x16")
    endif()
    string(REGEX MATCH "^([a-z0-9]+)_([0-9]+)x" _ ${type})
    set(precision ${CMAKE_MATCH_1})
    set(rows ${CMAKE_MATCH_2})
    configure_file(${source_dir}/type.cpp.in ${folder}/${type}.cpp @ONLY)
    list(APPEND sources ${folder}/${type}.cpp)
    string(APPEND each " each(${precision}, ${rows})")
  endforeach()
  file(CONFIGURE OUTPUT ${folder}/tessera/compiled_types.hpp
    CONTENT "// Made by CMake.\n#pragma once\n\n#define TESSERA_COMPILED_TYPES(each)${each}\n")
  set(compiled_sources ${sources} PARENT_SCOPE)
  set(compiled_include_dirs ${source_dir} ${folder} PARENT_SCOPE)
endfunction()
