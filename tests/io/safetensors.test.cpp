// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <tessera/core/random.hpp>
#include <tessera/io/read_tensors.hpp>
#include <tessera/io/safetensors.hpp>

#include "safetensors_sample.hpp"
#include "scratch_folder.hpp"

namespace safetensors_test {

using namespace tessera::io;
using namespace safetensors_sample;
using tessera::io_error;
using tessera::random_purpose;
using tessera::random_stream;
using tessera::shape_error;

/// A file of this header, as it stands, and `data` bytes of data.
void put_safetensors(std::string const& path, std::string const& header, std::size_t data) {
  const std::uint64_t length = header.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  put(path, bytes + header + std::string(data, 'x'));
}

std::string opening_says(std::string const& path) {
  return error_of<io_error>([&] { safetensors_file{path}; });
}

TEST_CASE("safetensors: what is written is read again") {
  const scratch_folder folder;
  write_sample(folder / "a");
  const safetensors_file file(folder / "a");
  CHECK(file.tensors().size() == 6);
  CHECK(file.metadata().at("tessera.format") == "checkpoint");
  CHECK(file.expect_format("checkpoint", 3) == 2);

  std::vector<float> w(6);
  file.read_into("layer.0.w", {2, 3}, std::span(w));
  CHECK(w == weights);
  std::vector<double> m(2);
  file.read_into("moments", {2, 1}, std::span(m));
  CHECK(m == moments);
  std::vector<std::int32_t> c(3);
  file.read_into("columns", {3}, std::span(c));
  CHECK(c == columns);
  std::vector<std::uint64_t> s(1);
  file.read_into("seed", {}, std::span(s));
  CHECK(s == seeds);
  file.read_into("none", {0, 4}, std::span<float>());

  CHECK(file.at("odd").dtype == "U8");
  CHECK(file.at("odd").shape == std::vector<std::int64_t>{3});
  CHECK(std::memcmp(file.at("odd").bytes.data(), odd.data(), 3) == 0);
  CHECK(file.contains("odd"));
  CHECK_FALSE(file.contains("even"));
}

TEST_CASE("safetensors: every tensor written is aligned to its numbers") {
  const scratch_folder folder;
  write_sample(folder / "a");
  const safetensors_file file(folder / "a");
  for (auto const& [name, tensor] : file.tensors())
    CHECK(reinterpret_cast<std::uintptr_t>(tensor.bytes.data()) % dtype_bytes(tensor.dtype) == 0);
  std::uint64_t length = 0;
  std::memcpy(&length, read_file(folder / "a").data(), sizeof(length));
  CHECK(length % 8 == 0);
}

TEST_CASE("safetensors: a file without tensors is legal") {
  const scratch_folder folder;
  write_safetensors(folder / "a", {});
  CHECK(safetensors_file(folder / "a").tensors().empty());
  CHECK(safetensors_file(folder / "a").metadata().empty());
}

TEST_CASE("safetensors: a file outlives a move of its reader") {
  const scratch_folder folder;
  write_sample(folder / "a");
  safetensors_file first(folder / "a");
  const safetensors_file second = std::move(first);
  CHECK(std::memcmp(second.at("odd").bytes.data(), odd.data(), 3) == 0);
}

TEST_CASE("safetensors: a dtype stands for each element and integer") {
  CHECK(std::string(dtype_name<float>()) == "F32");
  CHECK(std::string(dtype_name<double>()) == "F64");
  CHECK(std::string(dtype_name<bool>()) == "BOOL");
  CHECK(std::string(dtype_name<std::int8_t>()) == "I8");
  CHECK(std::string(dtype_name<std::uint16_t>()) == "U16");
  CHECK(std::string(dtype_name<std::int64_t>()) == "I64");
  CHECK(dtype_bytes("BF16") == 2);
  CHECK(dtype_bytes("F31") == 0);
}

TEST_CASE(
    "safetensors: tensors of a multiple of 64 bytes begin at one, and all are aligned to their numbers") {
  const scratch_folder folder;
  const std::vector<double> wide(24);
  const std::vector<std::int8_t> narrow(128);
  write_safetensors(folder / "a", std::vector{make_safetensor("odd", {3}, std::span(wide).first(3)),
                                              make_safetensor("bytes", {128}, std::span(narrow)),
                                              make_safetensor("some", {5}, std::span(narrow).first(5)),
                                              make_safetensor("wide", {24}, std::span(wide))});
  const safetensors_file file(folder / "a");
  const std::string all = read_file(folder / "a");
  const auto begin_of = [&](char const* name) {
    return std::size_t(file.at(name).bytes.data() - file.at("wide").bytes.data());
  };
  CHECK(begin_of("bytes") == 192);
  CHECK(begin_of("odd") == 320);
  CHECK(begin_of("some") == 344);
  CHECK((all.size() - 349) % 64 == 0);
  CHECK(reinterpret_cast<std::uintptr_t>(file.at("wide").bytes.data()) % 64 == 0);
}

TEST_CASE("safetensors: a tensor that does not fit what is wanted is an error with its place") {
  const scratch_folder folder;
  write_safetensors(folder / "a", std::vector{make_safetensor("w", {2, 3}, std::span(weights))});
  const safetensors_file file(folder / "a");
  const std::string place = "[read " + folder / "a" + "] byte 128: ";
  std::vector<float> w(6);
  std::vector<double> d(6);
  CHECK(error_of<io_error>([&] { file.read_into("w", {3, 2}, std::span(w)); }) ==
        place + "tensor \"w\" is F32 (2, 3) but should be F32 (3, 2)");
  CHECK(error_of<io_error>([&] { file.read_into("w", {2, 3}, std::span(d)); }) ==
        place + "tensor \"w\" is F32 (2, 3) but should be F64 (2, 3)");
  CHECK(error_of<io_error>([&] { file.read_into("v", {2, 3}, std::span(w)); }) ==
        "[read " + folder / "a" + "] byte 8: no tensor \"v\", but \"w\"");
  CHECK(error_of<shape_error>([&] { file.read_into("w", {2, 3}, std::span(w).first(5)); }) ==
        "[read " + folder / "a" + "] tensor \"w\" is F32 (2, 3), 24 bytes, but there is room for 20");
}

TEST_CASE("safetensors: checksums of the tensors stand in the metadata and find any change") {
  const scratch_folder folder;
  std::vector<float> numbers(200'000);  // some pieces
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = float(i);
  const std::vector<float> large = numbers;
  const std::vector tensors{make_safetensor("large", {200'000}, std::span(large)),
                            make_safetensor("odd", {3}, std::span(odd)),
                            make_safetensor("none", {0}, std::span<float const>())};
  write_safetensors(folder / "a", tensors, {{"k", "v"}}, checksums::in_metadata);
  const std::string bytes = read_file(folder / "a");
  {
    const safetensors_file file(folder / "a");
    CHECK(file.metadata().size() == 5);
    for (safetensor const& tensor : tensors) {
      CHECK_NOTHROW(file.check(tensor.name));
      checksum sum;
      sum.add(tensor.bytes);
      char digits[17];
      std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(sum.value()));
      CHECK(file.metadata().at("tessera.checksum." + tensor.name) == digits);
    }
    std::vector<float> back(large.size());
    file.read_into("large", {200'000}, std::span(back));
    CHECK(back == large);
  }
  std::string changed = bytes;
  changed[bytes.size() - 1000] ^= 1;
  put(folder / "a", changed);
  const safetensors_file file(folder / "a");
  const std::string what = error_of<io_error>([&] { file.check("large"); });
  CHECK(what.starts_with("[read " + folder / "a" + "] byte "));
  CHECK(what.find("the bytes of tensor \"large\" have the checksum ") != what.npos);
  CHECK_NOTHROW(file.check("odd"));
  write_sample(folder / "b");
  CHECK(error_of<io_error>([&] { safetensors_file(folder / "b").check("odd"); }) ==
        "[read " + folder / "b" + "] byte 8: no checksum of tensor \"odd\"");
}

TEST_CASE(
    "safetensors: a changed header with a checksum is said to be changed, whatever else is wrong with it") {
  const scratch_folder folder;
  const std::vector tensors{make_safetensor("odd", {3}, std::span(odd))};
  write_safetensors(folder / "a", tensors, {{"k", "v\"tessera.header\":\""}}, checksums::in_metadata);
  const std::string bytes = read_file(folder / "a");
  const std::string own = "\"tessera.header\":\"";
  const std::size_t key = bytes.rfind(own), end = bytes.find("}}") + 2;
  REQUIRE(key != bytes.npos);
  CHECK_NOTHROW(safetensors_file(folder / "a").check_header());
  for (std::size_t i = 9; i < end; ++i)
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = bytes;
      changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
      put(folder / "a", changed);
      const std::string what = error_of<io_error>([&] { safetensors_file(folder / "a").check_header(); });
      CAPTURE(what);
      if (i < key || i >= key + own.size())
        CHECK(what.find("] byte 8: the header has the checksum ") != what.npos);
      else
        CHECK(what != "");
    }
  {
    put(folder / "a", bytes);
    const safetensors_file file(folder /
                                "a");  // without checksums the new header has none, also not the old one
    write_safetensors(folder / "b", tensors, file.metadata());
  }
  CHECK(error_of<io_error>([&] { safetensors_file(folder / "b").check_header(); }) ==
        "[read " + folder / "b" + "] byte 8: no checksum of the header");
}

TEST_CASE("safetensors: foreign files and future versions are refused") {
  const scratch_folder folder;
  write_sample(folder / "a");
  const std::string place = "[read " + folder / "a" + "] byte 8: ";
  const safetensors_file file(folder / "a");
  CHECK(error_of<io_error>([&] { file.expect_format("checkpoint", 1); }) ==
        place + "format \"checkpoint\" of version 2, but versions 1 to 1 can be read");
  CHECK(error_of<io_error>([&] { file.expect_format("tokens", 1); }) ==
        place + "the format is \"checkpoint\" but should be \"tokens\"");
  write_safetensors(folder / "a", {}, {{"format", "pt"}});
  CHECK(error_of<io_error>([&] { safetensors_file(folder / "a").expect_format("checkpoint", 1); }) ==
        place + "not the format \"checkpoint\": the metadata lack tessera.format or tessera.version");
  for (const char* version : {"", "0", "-1", "1.5", "99999999999"}) {
    write_safetensors(folder / "a", {}, {{"tessera.format", "checkpoint"}, {"tessera.version", version}});
    CHECK_THROWS_AS(safetensors_file(folder / "a").expect_format("checkpoint", 9), io_error);
  }
}

TEST_CASE("safetensors: a tensor that cannot be written is an error and leaves no file") {
  const scratch_folder folder;
  const auto refused = [&]<class Error>(Error, safetensor const& tensor) {
    const std::vector tensors{make_safetensor("first", {3}, std::span(odd)), tensor};
    return error_of<Error>([&] { write_safetensors(folder / "a", tensors); });
  };
  const std::string place = "[write " + folder / "a" + "] tensor ";
  CHECK(refused(shape_error(""), make_safetensor("w", {2, 2}, std::span(weights))) ==
        place + "\"w\" is F32 (2, 2), 16 bytes, but 24 bytes are given");
  CHECK(refused(shape_error(""), {"w", "F32", {std::int64_t{1} << 40, std::int64_t{1} << 40}, {}}) ==
        place + "\"w\" is F32 (1099511627776, 1099511627776), which has no size in 64 bits");
  CHECK(refused(shape_error(""), {"w", "F32", {-1}, {}}) != "");
  CHECK(refused(shape_error(""), {"w", "F31", {0}, {}}).find("F31 (0), but the known dtypes are BOOL U8") !=
        std::string::npos);
  CHECK(refused(io_error(""), make_safetensor("first", {3}, std::span(odd))) ==
        place + "\"first\" has a name that is taken");
  CHECK(refused(io_error(""), make_safetensor("__metadata__", {3}, std::span(odd))) != "");
  CHECK(folder.files() == 0);
}

TEST_CASE("safetensors: a header that contradicts itself or the file is an error with its place") {
  const scratch_folder folder;
  const auto says = [&](std::string const& header, std::size_t data) {
    put_safetensors(folder / "a", header, data);
    const std::string all = opening_says(folder / "a"), start = "[read " + folder / "a";
    return all.compare(0, start.size(), start) == 0 ? all.substr(start.size()) : all;
  };
  const auto tensor = [](std::string const& name, std::string const& shape, std::string const& offsets) {
    return "\"" + name + R"(":{"dtype":"U8","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
  };
  const std::string in_header = ", header at byte 8] w";
  CHECK(says("{" + tensor("w", "[2,3]", "[0,6]") + "}", 6) == "");
  CHECK(says("{" + tensor("w", "[2,3]", "[0,5]") + "}", 6) ==
        in_header + ".data_offsets is [0,5], but U8 (2, 3) takes 6 bytes");
  CHECK(says("{" + tensor("w", "[2,3]", "[6,0]") + "}", 6) != "");
  CHECK(says("{" + tensor("w", "[2,3]", "[0,6,7]") + "}", 6) ==
        in_header + ".data_offsets has 3 numbers but should have 2");
  CHECK(says("{" + tensor("w", "[2,-3]", "[0,6]") + "}", 6) ==
        in_header + " is U8 (2, -3), which has no size in 64 bits");
  CHECK(says("{" + tensor("w", "[4294967296,4294967296]", "[0,0]") + "}", 0) ==
        in_header + " is U8 (4294967296, 4294967296), which has no size in 64 bits");
  CHECK(says("{" + tensor("w", "[2.5]", "[0,2]") + "}", 2).find(in_header + ".shape[0] is 2.5 but") == 0);
  CHECK(says("{\"w\":{\"shape\":[2],\"data_offsets\":[0,2]}}", 2) ==
        in_header + " has no member \"dtype\"; it has \"shape\", \"data_offsets\"");
  CHECK(says("{\"w\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2) ==
        in_header + " is F4 (3), which is no whole number of bytes");
  CHECK(says("{\"w\":{\"dtype\":\"F6_E2M3\",\"shape\":[2,2],\"data_offsets\":[0,2]}}", 2) ==
        in_header + ".data_offsets is [0,2], but F6_E2M3 (2, 2) takes 3 bytes");
  CHECK(says("{\"w\":{\"dtype\":\"U7\",\"shape\":[2],\"data_offsets\":[2,0]}}", 2) ==
        in_header + ".data_offsets is [2,0], which ends before it begins");
  CHECK(says("{\"__metadata__\":{\"w\":1}}", 0) ==
        ", header at byte 8] __metadata__.w is 1 but should be a string");

  const std::string two = "{" + tensor("v", "[2]", "[0,2]") + ",";
  const std::size_t begin = 8 + two.size() + tensor("w", "[2]", "[2,4]").size() + 1;
  CHECK(says(two + tensor("w", "[2]", "[2,4]") + "}", 4) == "");
  CHECK(says(two + tensor("w", "[2]", "[1,3]") + "}", 4) ==
        "] byte " + std::to_string(begin + 1) +
            ": tensor \"w\", bytes 1 to 3 of the data, overlaps the one before");
  CHECK(says(two + tensor("w", "[2]", "[3,5]") + "}", 5) ==
        "] byte " + std::to_string(begin + 2) +
            ": tensor \"w\", bytes 3 to 5 of the data, leaves a hole here");
  CHECK(says(two + tensor("w", "[2]", "[2,4]") + "}", 3) ==
        "] byte " + std::to_string(begin + 3) +
            ": tensor \"w\", bytes 2 to 4 of the data, is cut off here: the file ends");
  CHECK(says(two + tensor("w", "[2]", "[2,4]") + "}", 9) ==
        "] byte " + std::to_string(begin + 4) + ": 5 bytes belong to no tensor");
  CHECK(says(two + tensor("v", "[2]", "[2,4]") + "}", 4).find("expected a key that differs") !=
        std::string::npos);
  CHECK(says("{" + tensor("w", "[9223372036854775807]", "[9223372036854775807,18446744073709551614]") + "}",
             9) != "");
}

TEST_CASE("safetensors: a file of another kind is refused") {
  const scratch_folder folder;
  const auto says = [&](std::string const& bytes) {
    put(folder / "a", bytes);
    return opening_says(folder / "a");
  };
  const std::string place = "[read " + folder / "a" + "] byte ";
  CHECK(says("") == place + "0: the file ends within the length of the header: not a safetensors file");
  CHECK(says("no tensors in this text") == place +
                                               "0: a header of 8030883942550761326 bytes, more than the "
                                               "100000000 allowed: not a safetensors file");
  CHECK(says(std::string("\x40\0\0\0\0\0\0\0{}", 10)) ==
        place + "10: the file ends within the header of 64 bytes");
  CHECK(says(std::string("\2\0\0\0\0\0\0\0[]", 10)) ==
        place + "8: the header does not begin with '{': not a safetensors file");
  CHECK(says(std::string(8, '\0')) ==
        place + "8: the header does not begin with '{': not a safetensors file");
  CHECK(opening_says(folder / "none") == "[read " + folder / "none" + "] No such file or directory");
}

TEST_CASE("safetensors: a header that would take far more memory than tensors need is refused") {
  const scratch_folder folder;
  std::string header = R"({"a":{"dtype":"F32","shape":[)";
  for (int i = 0; i < 1'000'000; ++i) header += "0,";
  header += R"(0],"data_offsets":[0,0]}})";
  std::string bytes(8, '\0');
  for (int i = 0; i < 8; ++i) bytes[std::size_t(i)] = char(header.size() >> (8 * i) & 255);
  put(folder / "a", bytes + header);
  CHECK(
      opening_says(folder / "a")
          .ends_with(tessera::message("expected at most ", 1000 + header.size() / 4, " values, found '0'")));
}

TEST_CASE("safetensors: a tensor of a dtype that is not read spoils no other one") {
  const scratch_folder folder;
  put_safetensors(folder / "a",
                  R"({"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                  R"("q":{"dtype":"F4","shape":[4],"data_offsets":[2,4]},)"
                  R"("s":{"dtype":"F6_E3M2","shape":[4],"data_offsets":[4,7]},)"
                  R"("c":{"dtype":"C64","shape":[1],"data_offsets":[7,15]},)"
                  R"("t":{"dtype":"T3_\u001b","shape":[9,9],"data_offsets":[15,17]}})",
                  17);
  const safetensors_file file(folder / "a");
  CHECK(file.tensors().size() == 5);
  CHECK(read_numbers<int>(file, "w").size() == 2);
  CHECK(file.at("q").bytes.size() == 2);
  CHECK(file.at("s").bytes.size() == 3);
  CHECK(file.at("t").shape == std::vector<std::int64_t>{9, 9});
  for (std::string const name : {"q", "s", "c"})
    CHECK(error_of<io_error>([&] { read_numbers<float>(file, name); }) ==
          "[read " + folder / "a" + "] tensor \"" + name + "\" is \"" + file.at(name).dtype +
              "\": numbers of this dtype are not read");
  CHECK(error_of<io_error>([&] {
          read_numbers<float>(file, "t");
        }).ends_with("] tensor \"t\" is \"T3_\\x1b\": numbers of this dtype are not read"));

  // Elements of four bits take half a byte.
  const std::string packed("\x12\x34");
  write_safetensors(folder / "b",
                    std::vector{safetensor{"q", "F4", {2, 2}, std::as_bytes(std::span(packed.data(), 2))}});
  CHECK(safetensors_file(folder / "b").at("q").dtype == "F4");
}

TEST_CASE("safetensors: a file may have as many tensors as its header holds") {
  const scratch_folder folder;
  std::string header = "{";
  constexpr int tensors = 200'000;
  for (int i = 0; i < tensors; ++i)
    header += tessera::message(i == 0 ? "\"" : ",\"", i,
                               "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[", i, ",", i + 1, "]}");
  put_safetensors(folder / "a", header + "}", tensors);
  const safetensors_files files(folder / "a");
  CHECK(files.files()[0].tensors().size() == tensors);
  CHECK(files.contains("199999"));
}

TEST_CASE("safetensors: an error quotes little of a file") {
  const scratch_folder folder;
  const std::string long_text(1'000'000, 'x');
  const auto length = [&](std::string const& header, std::size_t data) {
    put_safetensors(folder / "a", header, data);
    return error_of<io_error>([&] {
             const safetensors_file file(folder / "a");
             for (auto const& [name, tensor] : file.tensors())
               static_cast<void>(read_numbers<float>(file, name));
             static_cast<void>(file.at("none"));
           })
        .size();
  };
  for (auto const& [dtype, shape, offsets] : {std::array{"\"U8\"", "[1]", "[0,1]"},
                                              {"7", "[1]", "[0,1]"},
                                              {"\"LONG\"", "[1]", "[0,1]"},
                                              {"\"U8\"", "\"LONG\"", "[0,1]"},
                                              {"\"U8\"", "[\"LONG\"]", "[0,1]"},
                                              {"\"U8\"", "[1]", "\"LONG\""},
                                              {"\"U8\"", "[1]", "[1,0]"},
                                              {"\"U8\"", "[1]", "[0,2]"},
                                              {"\"U8\"", "[1]", "[5,6]"}})
    for (std::string const name : {"w", "LONG"}) {
      std::string header = "{\"" + name + "\":{\"dtype\":" + dtype + ",\"shape\":" + shape +
                           ",\"data_offsets\":" + offsets + "}}";
      for (std::size_t at = 0; (at = header.find("LONG")) != header.npos;) header.replace(at, 4, long_text);
      const std::size_t says = length(header, 1);
      CHECK_MESSAGE((says > 20 && says < 700), header.substr(0, 200));
    }
}

TEST_CASE("safetensors: a file cut off at any byte is an io_error") {
  const scratch_folder folder;
  write_sample(folder / "a");
  const std::string whole = read_file(folder / "a");
  for (std::size_t length = 0; length < whole.size(); ++length) {
    put(folder / "a", whole.substr(0, length));
    CHECK_MESSAGE(!opening_says(folder / "a").empty(), "cut at byte " << length);
  }
  put(folder / "a", whole + "x");
  CHECK_FALSE(opening_says(folder / "a").empty());
}

TEST_CASE("safetensors: any header gives tensors within the file or an io_error") {
  const scratch_folder folder;
  write_sample(folder / "a");
  const std::string whole = read_file(folder / "a");
  std::uint64_t header = 0;
  std::memcpy(&header, whole.data(), sizeof(header));
  const random_stream random(3, random_purpose::test);
  const std::string likely = "0123456789-.,:[]{}\" e";
  std::uint64_t i = 0;
  int refused = 0;
  for (int round = 0; round < 5000; ++round) {
    std::string bytes = whole;
    for (std::uint64_t n = 1 + random.below(i++, 3); n > 0; --n) {
      const std::size_t at = random.below(i++, 8 + header);
      const char changed = random.below(i++, 3) > 0 ? likely[random.below(i++, likely.size())]
                                                    : static_cast<char>(random.bits(i++));
      if (const std::uint64_t edit = random.below(i++, 10); edit == 0)
        bytes.erase(at, 1);
      else if (edit == 1)
        bytes.insert(at, 1, changed);
      else
        bytes[at] = changed;
    }
    put(folder / "a", bytes);
    unsigned sum = 0;
    try {
      const safetensors_file file(folder / "a");
      for (auto const& [name, tensor] : file.tensors())
        for (const std::byte b : tensor.bytes) sum += static_cast<unsigned>(b);
    } catch (io_error const&) {
      ++refused;
    }
    REQUIRE(sum <= 255 * whole.size());
  }
  CHECK(refused > 2500);
  CHECK(refused < 5000);
}

}  // namespace safetensors_test
