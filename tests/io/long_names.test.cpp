// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <tessera/io/matrix_market.hpp>
#include <tessera/io/numpy.hpp>
#include <tessera/io/read_json.hpp>
#include <tessera/io/safetensors.hpp>
#include <tessera/io/scipy.hpp>
#include <tessera/io/smtx.hpp>

#include "scratch_folder.hpp"

// What a file holds is quoted in errors, and never at length.

namespace long_names_test {

using namespace tessera;

const std::string name(10'000, 'x');

/// Each error of a reader of a file with these bytes is one of a line.
template <class Read> void check_short(std::string const& bytes, Read read) {
  const scratch_folder folder;
  put(folder / "a", bytes);
  const std::string error = error_of<io_error>([&] { read(folder / "a"); });
  INFO(error);
  CHECK(error.size() > 0);
  CHECK(error.size() < 450);
  CHECK(error.find(std::string(101, 'x')) == error.npos);
}

TEST_CASE("readers: an error is short whatever stands in a text") {
  const auto matrix_market = [](auto const& path) { io::read_matrix_market<float, block_shape<1>>(path); };
  const auto smtx = [](auto const& path) { io::read_smtx(path); };
  const std::string heading = "%%MatrixMarket matrix coordinate real general\n";
  for (std::string const& text :
       {name, heading + name, heading + "1 1 1\n1 1 " + name, heading + "1 1 1\n1 1 1" + name,
        "%%MatrixMarket " + name, heading + "1 1 1\n1 1 1\n" + name})
    check_short(text, matrix_market);
  for (std::string const& text : {name, "1, 1, " + name, "1, 1, 1\n0 1\n" + name, "1, 1, 1\n0 1\n0\n" + name})
    check_short(text, smtx);
  const auto number = [](auto const& path) {
    const io::json all = io::read_json(path);
    io::json_place(all, path).at("n").at(0).at("rate").as_number();
  };
  for (std::string const& text :
       {name, "\"" + name, "{\"" + name + "\":1,\"" + name + "\":2}", "{\"" + name + "\":1}",
        "{\"n\":[{\"" + name + "\":1}]}", "{\"n\":[{\"rate\":\"" + name + "\"}]}", "{\"n\":\"" + name + "\"}",
        "{\"n\":[{\"rate\":" + std::string(10'000, '1') + "}]}"})
    check_short(text, number);
  std::string many = "{";
  for (int i = 0; i < 1000; ++i)
    many += (i == 0 ? "\"" : ",\"") + std::to_string(i) + name.substr(0, 50) + "\":1";
  check_short(many + "}", number);
  check_short("{\"" + name + "\":1}", [](auto const& path) {
    const io::json all = io::read_json(path);
    io::json_place(all, path).at(name).at(name).at(name);
  });
}

TEST_CASE("readers: an error is short whatever tensors and arrays are called") {
  const float one = 1;
  const std::vector<io::safetensor> tensors{
      io::make_safetensor(name, std::vector<std::int64_t>(60, 1), std::span(&one, 1))};
  const auto bytes_of = [](auto&& write) {
    const scratch_folder folder;
    write(folder / "a");
    return io::read_file(folder / "a");
  };
  const std::string file = bytes_of([&](auto const& path) { io::write_safetensors(path, tensors); }),
                    archive = bytes_of([&](auto const& path) { io::write_npz(path, tensors); });
  panel_matrix<float> x(3, 4);
  const auto tensors_of = [](auto const& path) { return io::safetensors_file(path); };
  const auto arrays_of = [](auto const& path) { return io::numpy_file(path); };
  const auto check_both = [&](auto use) {
    check_short(file, [&](auto const& path) { use(tensors_of(path)); });
    check_short(archive, [&](auto const& path) { use(arrays_of(path)); });
  };
  check_both([&](auto const& opened) { opened.at("none"); });
  check_both([&](auto const& opened) { opened.at(name + name); });
  check_both([&](auto const& opened) { io::read(opened, name, x); });
  check_short(file, [&](auto const& path) { tensors_of(path).check(name); });
  check_short(file, [&](auto const& path) { tensors_of(path).expect_format("f", 1); });
  check_short(archive, [](auto const& path) { io::read_scipy<float, block_shape<1>>(path); });

  const auto header = [](std::string const& text) {
    const std::uint64_t length = text.size();
    return std::string(reinterpret_cast<char const*>(&length), 8) + text;
  };
  for (std::string const& text :
       {"{\"" + name + "\":1}", "{\"" + name + "\":{\"" + name + "\":1}}",
        "{\"" + name + "\":{\"dtype\":\"" + name + "\",\"shape\":[],\"data_offsets\":[0,4]}}",
        "{\"" + name + "\":{\"dtype\":\"F32\",\"shape\":[\"" + name + "\"],\"data_offsets\":[0,4]}}",
        "{\"" + name + "\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,8]}}",
        "{\"__metadata__\":{\"" + name + "\":[]}}"})
    check_short(header(text), [](auto const& path) { const io::safetensors_file opened(path); });
  std::string formats =
      "{\"__metadata__\":{\"tessera.format\":\"" + name + "\",\"tessera.version\":\"" + name + "\"}}";
  check_short(header(formats), [&](auto const& path) { tensors_of(path).expect_format("f", 1); });
  check_short(header(formats), [&](auto const& path) { tensors_of(path).expect_format(name, 1); });

  const auto npy = [](std::string const& text) {
    const auto length = static_cast<std::uint16_t>(text.size());
    return std::string("\x93NUMPY\1\0", 8) + std::string(reinterpret_cast<char const*>(&length), 2) + text;
  };
  for (std::string const& text :
       {name, "{'" + name + "':1}", "{'descr':'" + name + "','fortran_order':False,'shape':(1,),}",
        "{'descr':[('" + name + "','<f4')],'fortran_order':False,'shape':(1,),}",
        "{'descr':'<U" + name + "','fortran_order':False,'shape':(1,),}", "{'descr':'<f4'} " + name})
    check_short(npy(text), [&](auto const& path) { io::read(io::numpy_file(path), "", x); });
}

}  // namespace long_names_test
