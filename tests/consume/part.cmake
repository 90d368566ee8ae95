# A library of the consumer's own, which links tessera and is exported, from the build folder and where it is installed.
add_library(part INTERFACE)
target_link_libraries(part INTERFACE tessera::native)
install(TARGETS part EXPORT part)
install(EXPORT part DESTINATION share)
export(EXPORT part FILE part.cmake)
