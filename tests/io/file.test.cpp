// SPDX-License-Identifier: BSD-3-Clause
#include <csignal>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tessera/io/file.hpp>
#include <tessera/io/folder.hpp>

#include "scratch_folder.hpp"

namespace file_test {

using tessera::io_error;
using tessera::io::file_writer;
using tessera::io::mapped_file;
using tessera::io::memory_limit;
using tessera::io::read_file;
using tessera::io::require_writable;
using tessera::io::write_atomically;

/// No file of this process may grow beyond a number of bytes; the disk seems full.
class file_size_limit {
 public:
  explicit file_size_limit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &now);
  }
  file_size_limit(file_size_limit const&) = delete;
  file_size_limit& operator=(file_size_limit const&) = delete;
  ~file_size_limit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST_CASE("file: one of more bytes than the limit is refused before there is memory for them") {
  const scratch_folder folder;
  put(folder / "holes", "text");
  std::filesystem::resize_file(folder / "holes", std::uintmax_t(1) << 36);  // no more bytes on the disk
  CHECK(error_of<io_error>([&] { read_file(folder / "holes"); }) ==
        "[read " + (folder / "holes") + "] 68719476736 bytes, but the memory_limit is 1073741824");
  put(folder / "a", "text");
  CHECK(read_file(folder / "a", memory_limit{4}) == "text");
  CHECK(error_of<io_error>([&] { read_file(folder / "a", memory_limit{3}); }).find("4 bytes") !=
        std::string::npos);
  CHECK(error_of<io_error>([] {
          read_file("/proc/self/maps", memory_limit{10});
        }).find("memory_limit is 10") != std::string::npos);  // which says that it has none
}

TEST_CASE("file: what is written is read again") {
  const scratch_folder folder;
  std::string text(100'000, 'x');
  text += std::string("\0\n\xff", 3);
  write_atomically(folder / "a", [&](file_writer& out) {
    out.write(text);
    CHECK(out.offset() == text.size());
    out.write(text);
  });
  CHECK(read_file(folder / "a") == text + text);
  const mapped_file mapped(folder / "a");
  CHECK(std::string(reinterpret_cast<char const*>(mapped.bytes().data()), mapped.bytes().size()) ==
        text + text);
  CHECK(folder.files() == 1);
}

TEST_CASE("file: an empty file is legal") {
  const scratch_folder folder;
  write_atomically(folder / "empty", "");
  CHECK(read_file(folder / "empty").empty());
  CHECK(mapped_file(folder / "empty").bytes().empty());
}

TEST_CASE("file: files without a size are read to their end") {
  CHECK_FALSE(read_file("/proc/self/maps").empty());
}

TEST_CASE("file: what cannot be read is an error with path and reason") {
  const scratch_folder folder;
  CHECK(error_of<io_error>([&] { read_file(folder / "none"); }) ==
        "[read " + folder / "none" + "] No such file or directory");
  CHECK(error_of<io_error>([&] { read_file(folder / "."); }) ==
        "[read " + folder / "." + "] is a folder, not a regular file");
  CHECK_THROWS_AS(mapped_file(folder / "none"), io_error);
  CHECK_THROWS_AS(mapped_file(folder / "."), io_error);
}

TEST_CASE("file: a pipe, a socket or a device is refused at once, a link to a file is followed") {
  const scratch_folder folder;
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  REQUIRE(::mknod((folder / "socket").c_str(), S_IFSOCK | 0600, 0) == 0);
  put(folder / "file", "text");
  for (std::string const name : {"pipe", "socket", "file"})
    REQUIRE(::symlink((folder / name).c_str(), (folder / (name + ".link")).c_str()) == 0);
  const auto wrong = [](std::string const& path, std::string const& kind) {
    const std::string says = "[read " + path + "] is " + kind + ", not a regular file";
    CHECK(error_of<io_error>([&] { read_file(path); }) == says);
    CHECK(error_of<io_error>([&] { mapped_file{path}; }) == says);
  };
  for (std::string const link : {"", ".link"}) {
    wrong(folder / ("pipe" + link), "a pipe");
    wrong(folder / ("socket" + link), "a socket");
  }
  wrong("/dev/null", "a device");
  CHECK(read_file(folder / "file.link") == "text");
  CHECK(mapped_file(folder / "file.link").bytes().size() == 4);
}

TEST_CASE("file: a mapped file keeps its bytes when it is moved and when the file is replaced") {
  const scratch_folder folder;
  write_atomically(folder / "a", "before");
  mapped_file first(folder / "a");
  mapped_file second = std::move(first);
  write_atomically(folder / "a", "after!");
  CHECK(first.bytes().empty());
  CHECK(static_cast<char>(second.bytes()[0]) == 'b');
  second = mapped_file(folder / "a");
  CHECK(static_cast<char>(second.bytes()[0]) == 'a');
}

TEST_CASE("file: a disk that is full is an error with the byte reached") {
  file_writer out(tessera::io::detail::descriptor(::open("/dev/full", O_WRONLY)), "/dev/full");
  CHECK(error_of<io_error>([&] { out.write("text"); }) == "[write /dev/full] No space left on device");
}

TEST_CASE("file: when the disk fills up the earlier file stays and nothing else is left") {
  const scratch_folder folder;
  write_atomically(folder / "a", "earlier");
  {
    const file_size_limit full(10'000);
    CHECK(error_of<io_error>([&] { write_atomically(folder / "a", std::string(20'000, 'x')); }) ==
          "[write " + folder / "a" + "] byte 10000: File too large");
    CHECK_THROWS_AS(write_atomically(folder / "b", std::string(10'001, 'x')), io_error);
    write_atomically(folder / "c", std::string(10'000, 'x'));
  }
  CHECK(read_file(folder / "a") == "earlier");
  CHECK(read_file(folder / "c").size() == 10'000);
  CHECK(folder.files() == 2);
}

TEST_CASE("file: when the writer throws the earlier file stays and nothing else is left") {
  const scratch_folder folder;
  write_atomically(folder / "a", "earlier");
  const auto stop = [](file_writer& out) {
    out.write("half");
    throw std::logic_error("stop");
  };
  CHECK_THROWS_AS(write_atomically(folder / "a", stop), std::logic_error);
  CHECK_THROWS_AS(write_atomically(folder / "b", stop), std::logic_error);
  CHECK(read_file(folder / "a") == "earlier");
  CHECK(folder.files() == 1);
}

TEST_CASE("file: what cannot be written is an error and is left alone") {
  const scratch_folder folder;
  CHECK(error_of<io_error>([&] { write_atomically(folder / "none/a", "x"); }) ==
        "[write " + folder / "none/a" + "] No such file or directory");
  CHECK(error_of<io_error>([&] { write_atomically("/dev/null", "x"); }) ==
        "[write /dev/null] there is a device of that name; give the name of a file");
  CHECK_THROWS_AS(write_atomically(folder / ".", "x"), io_error);
  CHECK(error_of<io_error>([&] { require_writable(folder / "none/a"); }) ==
        "[write " + folder / "none/a" + "] No such file or directory");
  CHECK(error_of<io_error>([&] { require_writable("/dev/null"); }) ==
        "[write /dev/null] there is a device of that name; give the name of a file");
  require_writable(folder / "a");
  CHECK(folder.files() == 0);
}

TEST_CASE("file: links, pipes, sockets and folders in its place are refused and stay, whenever they came") {
  namespace fs = std::filesystem;
  const scratch_folder folder;
  const std::string place = folder / "a", mine = folder / "precious.txt";
  const auto check = [&](std::string const& what, auto make) {
    const std::string expected =
        "[write " + place + "] there is " + what + " of that name; give the name of a file";
    make();
    CHECK(error_of<io_error>([&] { write_atomically(place, "x"); }) == expected);
    fs::remove(place);
    CHECK(error_of<io_error>([&] { write_atomically(place, [&](file_writer&) { make(); }); }) == expected);
    fs::remove(place);
  };
  put(mine, "precious");
  check("a link", [&] { fs::create_symlink("precious.txt", place); });
  check("a link", [&] { fs::create_symlink("none", place); });
  check("a link", [&] { fs::create_symlink(place, place); });
  check("a pipe", [&] { REQUIRE(::mkfifo(place.c_str(), 0666) == 0); });
  check("a socket", [&] { REQUIRE(::mknod(place.c_str(), S_IFSOCK | 0666, 0) == 0); });
  check("a folder", [&] { fs::create_directory(place); });
  fs::create_hard_link(mine, place);  // only the name is replaced
  write_atomically(place, "x");
  CHECK(read_file(mine) == "precious");
  CHECK(folder.files() == 2);
}

TEST_CASE("file: several processes write one file, and it is always whole") {
  const scratch_folder folder;
  std::vector<pid_t> writers;
  for (const char letter : {'a', 'b'}) {
    writers.push_back(::fork());
    REQUIRE(writers.back() >= 0);
    if (writers.back() > 0) continue;
    int code = 0;
    try {
      for (int i = 0; i < 50; ++i) {
        write_atomically(folder / "f", std::string(1000, letter));
        const std::string found = read_file(folder / "f");
        if (found != std::string(1000, 'a') && found != std::string(1000, 'b')) code = 1;
        tessera::io::remove_unfinished(folder / ".");
      }
    } catch (...) {
      code = 2;
    }
    ::_exit(code);
  }
  for (const pid_t writer : writers) {
    int status = -1;
    ::waitpid(writer, &status, 0);
    CHECK(status == 0);
  }
  CHECK(folder.files() == 1);
}

TEST_CASE("file: what a killed writer left behind does not disturb the next one") {
  const scratch_folder folder;
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    write_atomically(folder / "a", [](file_writer& out) {
      out.write("half");
      ::raise(SIGKILL);
    });
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  CHECK(WIFSIGNALED(status));
  CHECK(error_of<io_error>([&] { read_file(folder / "a"); }) != "");
  put(folder / ("a.partial-" + std::to_string(::getpid()) + "-0"), "left over");
  write_atomically(folder / "a", "whole");
  CHECK(read_file(folder / "a") == "whole");
  put(folder / "a.partial-1-x", "mine");
  write_atomically(folder / "b", [&](file_writer& out) {
    tessera::io::remove_unfinished(folder / ".");  // not that of a living writer
    out.write("whole");
  });
  CHECK(read_file(folder / "b") == "whole");
  CHECK(folder.files() == 3);
}

TEST_CASE("file: a new file has the permissions the user's mask allows") {
  const scratch_folder folder;
  const mode_t before = ::umask(027);
  write_atomically(folder / "a", "x");
  ::umask(before);
  struct stat about{};
  REQUIRE(::stat((folder / "a").c_str(), &about) == 0);
  CHECK((about.st_mode & 0777) == 0640);
}

}  // namespace file_test
