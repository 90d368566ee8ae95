# Compiles SOURCE, which must fail with a message that matches the regular expression (CMake's kind) of its first
# line, `// expect: …`, and with no other error if the line is `// expect one error: …`. A second line `// flags: …` adds
# flags. Without one, the header LIBRARY, which is precompiled, is included first. A discarded [[nodiscard]] value counts
# as a failure.
file(STRINGS ${SOURCE} first_lines LIMIT_COUNT 2)
list(GET first_lines 0 first_line)
list(GET first_lines 1 second_line)
if(NOT first_line MATCHES "^// expect( one error)?: (.+)$")
  message(FATAL_ERROR "${SOURCE}: the first line is not `// expect: REGEX` or `// expect one error: REGEX`")
endif()
set(alone "${CMAKE_MATCH_1}")
set(expected "${CMAKE_MATCH_2}")
if(second_line MATCHES "^// flags: (.+)$")
  list(APPEND FLAGS ${CMAKE_MATCH_1})
else()
  list(APPEND FLAGS -include ${LIBRARY})
endif()

execute_process(COMMAND ${COMPILER} ${FLAGS} -Werror=unused-result -Werror=unused-value -c ${SOURCE} -o /dev/null
  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(result EQUAL 0)
  message(FATAL_ERROR "${SOURCE} compiles, but must fail with: ${expected}")
elseif(NOT output MATCHES "${expected}")
  message(FATAL_ERROR "${SOURCE} fails without saying: ${expected}\nThe compiler said:\n${output}")
endif()
string(REGEX MATCHALL "error: " errors "${output}")
list(LENGTH errors count)
if(alone AND NOT count EQUAL 1)
  message(FATAL_ERROR "${SOURCE} fails with ${count} errors, but should with one:\n${output}")
endif()
