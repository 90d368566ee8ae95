// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdio>
#include <string>

#include <doctest/doctest.h>
#include <sys/wait.h>

/// What a command of the shell printed, and how it ended.
struct outcome {
  int code;
  std::string output;  // stdout and stderr
};

inline outcome shell(std::string const& script) {
  std::FILE* const pipe = popen(("exec 2>&1; " + script).c_str(), "r");
  REQUIRE(pipe);
  outcome result;
  for (int c = 0; (c = std::fgetc(pipe)) != EOF;) result.output += static_cast<char>(c);
  const int status = pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}
