// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tessera/core/error.hpp>

namespace bench {

using namespace tessera;

/// Another program that answers each line it reads by one line. It is stopped while it has nothing to do, so
/// that its threads, which may wait by spinning, disturb nobody.
class process {
 public:
  /// Variables, as "NAME=value", come on top of our environment; `shared` becomes its descriptor 3.
  explicit process(std::vector<std::string> arguments, std::vector<std::string> variables = {},
                   int shared = -1) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      throw error("[bench] no socket pair for " + arguments[0]);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    child_ = ::fork();
    if (child_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // also if it is stopped
      ::dup2(ends[1], 0);
      ::dup2(ends[1], 1);
      if (shared >= 0 && ::dup2(shared, 3) == 3) ::fcntl(3, F_SETFD, 0);
      for (std::string& variable : variables) ::putenv(variable.data());
      ::execvp(argv[0], argv.data());
      ::_exit(127);
    }
    ::close(ends[1]);
    to_ = ends[0];
    from_ = ::fdopen(::fcntl(ends[0], F_DUPFD_CLOEXEC, 0), "r");
  }
  ~process() {
    ::kill(child_, SIGKILL);
    std::fclose(from_);
    ::close(to_);
    ::waitpid(child_, nullptr, 0);
  }
  process(process const&) = delete;
  process& operator=(process const&) = delete;

  /// The next line it writes, without the line end; empty if it ended instead.
  std::string answer() {
    char* line = nullptr;
    std::size_t room = 0;
    const ssize_t length = ::getline(&line, &room, from_);
    std::string text(line, length > 0 ? std::size_t(length) : 0);
    std::free(line);
    while (text.ends_with('\n')) text.pop_back();
    ::kill(child_, SIGSTOP);
    return text;
  }
  std::string answer_to(std::string const& line) {
    const std::string text = line + "\n";
    ::kill(child_, SIGCONT);
    if (::send(to_, text.data(), text.size(), MSG_NOSIGNAL) != ssize_t(text.size())) return "";
    return answer();
  }

 private:
  pid_t child_;
  int to_;
  std::FILE* from_;
};

}  // namespace bench
