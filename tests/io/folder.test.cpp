// SPDX-License-Identifier: BSD-3-Clause
#include <filesystem>
#include <iterator>
#include <stdexcept>
#include <string>

#include <doctest/doctest.h>

#include <tessera/io/file.hpp>
#include <tessera/io/folder.hpp>

#include "scratch_folder.hpp"

namespace folder_test {

using tessera::io_error;
using tessera::io::make_folder;
using tessera::io::read_file;
using tessera::io::write_atomically;
using tessera::io::write_folder_atomically;

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

TEST_CASE("folder: what a killed process left is replaced") {
  const scratch_folder scratch;
  std::filesystem::create_directories(scratch / "folder.partial/deep");
  write(scratch / "folder", "first");
  CHECK(std::distance(std::filesystem::directory_iterator(scratch / "folder"), {}) == 2);
  CHECK(scratch.files() == 1);
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
