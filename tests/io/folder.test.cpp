// SPDX-License-Identifier: BSD-3-Clause
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tessera/io/file.hpp>
#include <tessera/io/folder.hpp>

#include "scratch_folder.hpp"

namespace folder_test {

using tessera::io_error;
using tessera::io::make_folder;
using tessera::io::read_file;
using tessera::io::write_atomically;
using tessera::io::write_folder_atomically;
using tessera::io::detail::folder_exchange;

/// A folder of two files, both with the text `text`.
void write(std::string const& path, std::string const& text) {
  write_folder_atomically(path, {"a", "b"}, [&](std::string const& partial) {
    write_atomically(partial + "/a", text);
    write_atomically(partial + "/b", text);
  });
}

TEST_CASE("folder: its parents are made, and a later one replaces it as a whole") {
  const scratch_folder scratch;
  write(scratch / "deep/folder", "first");
  std::filesystem::remove(scratch / "deep/folder/b");
  write_folder_atomically(scratch / "deep/folder", {"a", "b"},
                          [](std::string const& partial) { write_atomically(partial + "/b", "second"); });
  CHECK(read_file(scratch / "deep/folder/b") == "second");
  CHECK_FALSE(std::filesystem::exists(scratch / "deep/folder/a"));
  CHECK(std::distance(std::filesystem::directory_iterator(scratch / "deep"), {}) == 1);
}

TEST_CASE("folder: if writing fails, an earlier one stays and nothing is left") {
  const scratch_folder scratch;
  write(scratch / "folder", "first");
  for (const char* name : {"folder", "new"})
    CHECK_THROWS_AS(write_folder_atomically(scratch / name, {"a", "b"},
                                            [](std::string const& partial) {
                                              write_atomically(partial + "/a", "second");
                                              throw std::runtime_error("no b");
                                            }),
                    std::runtime_error);
  CHECK(read_file(scratch / "folder/a") == "first");
  CHECK(scratch.files() == 1);
}

TEST_CASE("folder: one with another file stays as it is, whenever the file came") {
  const scratch_folder scratch;
  write(scratch / "folder", "first");
  const std::string expected =
      "[write " + std::filesystem::canonical(scratch / "folder").string() +
      "] it holds notes.txt, but only a, b would be replaced; give a folder of its own";
  bool began = false;
  const auto refusal = [&] {
    return error_of<io_error>([&] {
      write_folder_atomically(scratch / "folder", {"a", "b"}, [&](std::string const&) {
        began = true;
        put(scratch / "folder/notes.txt", "mine");
      });
    });
  };
  CHECK(refusal() == expected);
  CHECK(began);
  began = false;
  CHECK(refusal() == expected);
  CHECK_FALSE(began);
  CHECK(read_file(scratch / "folder/notes.txt") == "mine");
  CHECK(read_file(scratch / "folder/a") == "first");
  CHECK(scratch.files() == 1);
}

TEST_CASE("folder: a file in its place is named and stays") {
  const scratch_folder scratch;
  put(scratch / "file", "mine");
  CHECK(error_of<io_error>([&] {
          write(scratch / "file", "first");
        }).ends_with("/file] there is a file of that name; give the name of a folder"));
  CHECK(error_of<io_error>([&] { write(scratch / "file/folder", "first"); }).ends_with("Not a directory"));
  CHECK(read_file(scratch / "file") == "mine");
  CHECK(scratch.files() == 1);
}

TEST_CASE("folder: a slash at the end and links mean the folder itself") {
  const scratch_folder scratch;
  write(scratch / "folder/", "first");
  std::filesystem::create_directory_symlink(scratch / "folder", scratch / "link");
  write(scratch / "link", "second");
  CHECK(read_file(scratch / "folder/a") == "second");
  CHECK(std::filesystem::is_symlink(scratch / "link"));
  CHECK(scratch.files() == 2);
}

TEST_CASE("folder: what a killed process left is removed, and nothing of a living one or of another name") {
  namespace fs = std::filesystem;
  const scratch_folder scratch;
  for (const char* name :
       {"folder.partial-1-0/deep", "folder.partial-12-345", "folder.replaced-1-0", "folder.partial",
        "folder.partial-", "folder.partial-7", "folder.partial-1-x", "other.partial-1-0"})
    fs::create_directories(scratch / name);
  write_folder_atomically(scratch / "folder", {"a", "b"}, [&](std::string const& partial) {
    write(scratch / "folder", "first");
    tessera::io::remove_unfinished(scratch / ".");
    write_atomically(partial + "/a", "second");
  });
  CHECK(read_file(scratch / "folder/a") == "second");
  CHECK_FALSE(fs::exists(scratch / "folder/b"));
  CHECK(fs::exists(scratch / "folder.partial"));
  CHECK(fs::exists(scratch / "folder.partial-1-x"));
  CHECK(fs::exists(scratch / "folder.partial-"));
  CHECK(fs::exists(scratch / "folder.partial-7"));
  CHECK(scratch.files() == 5);
}

TEST_CASE("folder: one that was moved out of the way when its writer was killed comes back") {
  const scratch_folder scratch;
  write(scratch / "run/folder.replaced-1-0", "first");
  tessera::io::remove_unfinished(scratch / "run");
  CHECK(read_file(scratch / "run/folder/a") == "first");
}

/// Writes a folder so often in two processes at a time that they meet; true if each succeeded or said why
/// not, and none ever found another folder than a whole one.
bool whole_under_two_writers(std::string const& path, folder_exchange how) {
  std::vector<pid_t> writers;
  for (const char* text : {"first", "second"}) {
    writers.push_back(::fork());
    if (writers.back() != 0) continue;
    int code = 0;
    try {
      for (int i = 0; i < 30; ++i) {
        const tessera::io::detail::folder_replacement made(path, {"a", "b"});
        put(made.partial() + "/a", text);
        put(made.partial() + "/b", text);
        made.replace(how);
        if (how == folder_exchange::never) continue;
        // Of one writer, even if the other one replaces it now.
        const tessera::io::detail::descriptor now(::open(path.c_str(), O_RDONLY | O_DIRECTORY));
        if (now.number() < 0) code = 1;
      }
    } catch (std::exception const& e) {
      std::fprintf(stderr, "%s\n", e.what());
      code = 2;
    }
    ::_exit(code);
  }
  bool all = true;
  for (const pid_t writer : writers) {
    int status = -1;
    ::waitpid(writer, &status, 0);
    all = all && status == 0;
  }
  return all;
}

TEST_CASE("folder: two processes write one, and it is always whole") {
  for (const folder_exchange how : {folder_exchange::if_possible, folder_exchange::never}) {
    const scratch_folder scratch;
    CHECK(whole_under_two_writers(scratch / "folder", how));
    CHECK(read_file(scratch / "folder/a") == read_file(scratch / "folder/b"));
    CHECK(scratch.files() == 1);
  }
}

TEST_CASE("folder: a new one is made once, with its parents") {
  const scratch_folder scratch;
  CHECK(make_folder(scratch / "deep/folder"));
  CHECK_FALSE(make_folder(scratch / "deep/folder"));
  put(scratch / "file", "mine");
  CHECK_FALSE(make_folder(scratch / "file"));
  CHECK(error_of<io_error>([&] { make_folder(scratch / "file/folder"); }) ==
        "[make " + scratch / "file/folder" + "] Not a directory");
}

}  // namespace folder_test
