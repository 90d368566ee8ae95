// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/io/printable.hpp>
#include <tessera/io/text.hpp>

namespace programs {

/// Runs `body(arguments)`, which returns the exit code. An option_error ends in 2 and any other exception in
/// 1, each with one line on stderr.
template <class Body>
int guarded_main(char const* program, int argument_count, char const* const* arguments, Body&& body) {
  const auto failed = [&](std::string_view what, int code) {
    std::fflush(stdout);
    std::fprintf(stderr, "%s: %s\n", program, tessera::io::printable(what).c_str());
    return code;
  };
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error like a full disk
  try {
    const int code = body(std::vector<std::string>(arguments + 1, arguments + argument_count));
    if (std::fflush(stdout) != 0 || std::ferror(stdout))
      return failed("[stdout] not all that was printed could be written", 1);
    return code;
  } catch (tessera::option_error const& error) {
    return failed(error.what(), 2);
  } catch (std::filesystem::filesystem_error const& error) {
    return failed("[" + tessera::io::excerpt(error.path1().string()) + "] " + error.code().message(), 1);
  } catch (std::bad_alloc const&) {
    return failed("[memory] there is not enough; a smaller model or batch needs less", 1);
  } catch (std::exception const& error) {
    return failed(error.what(), 1);
  }
}

}  // namespace programs
