// SPDX-License-Identifier: BSD-3-Clause
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <tessera/io/file_format.hpp>
#include <tessera/io/matrix_market.hpp>
#include <tessera/io/numpy.hpp>
#include <tessera/io/read_json.hpp>
#include <tessera/io/safetensors.hpp>
#include <tessera/io/scipy.hpp>
#include <tessera/io/smtx.hpp>

#include "scratch_folder.hpp"

namespace file_format_test {

using namespace tessera;
using single = block_shape<1>;

/// A file of each format that is written here, and the beginnings of others.
struct formats {
  scratch_folder folder;
  formats() {
    const std::vector<float> numbers{1, 2};
    const auto row = io::make_safetensor("x", {2}, std::span<float const>(numbers));
    const block_sparse_matrix<float, single> w(2, 2, pattern::dense(2, 2));
    io::write_npy(folder / "npy", row);
    io::write_npz(folder / "npz", std::vector{row});
    io::write_scipy(folder / "scipy", w);
    io::write_safetensors(folder / "safetensors", std::vector{row});
    io::write_matrix_market(folder / "mtx", w);
    io::write_smtx(folder / "smtx", w.pattern());
    put(folder / "json", "{\n \"x\": 1}");
    put(folder / "gzip", std::string("\x1f\x8b\x08\0", 4));
    put(folder / "zstd", "\x28\xb5\x2f\xfd");
    put(folder / "torch", std::string("PK\3\4") + std::string(26, '\0') + "archive/data.pkl");
    put(folder / "pickle", "\x80\4\x95");
    put(folder / "hdf5", "\x89HDF\r\n\x1a\n");
    put(folder / "lfs", "version https://git-lfs.github.com/spec/v1\n");
  }
};

TEST_CASE("file_format: a reader names the format of a file that is another's, and who reads it") {
  const formats all;
  const auto with = [&](auto&& read) {
    return [&, read](std::string const& file, std::string const& says) {
      INFO(file);
      const std::string error = error_of<io_error>([&] { read(all.folder / file); });
      CHECK_MESSAGE(error.find(says.empty() ? says : "[read " + (all.folder / file) + "] " + says) == 0,
                    error);
      CHECK(error.empty() == says.empty());
    };
  };
  const std::string npy = "is an array of NumPy (.npy): io::numpy_file reads it",
                    npz =
                        "is a zip archive, as .npz are: io::numpy_file reads arrays of NumPy, io::read_scipy",
                    safetensors = "is of safetensors: io::safetensors_file reads it",
                    mtx = "is a matrix of Matrix Market (.mtx): io::read_matrix_market reads it",
                    smtx = "is a pattern of .smtx: io::read_smtx reads it",
                    json = "is of JSON: io::read_json reads it",
                    gzip = "is compressed by gzip: unpack it first",
                    no_scipy = "no matrix of scipy.sparse.save_npz";
  const auto others = [](auto const& wrong) {
    wrong("zstd", "is compressed by zstd: unpack it first");
    wrong("torch", "is of torch.save: save its tensors in Python, by safetensors.torch.save_file");
    wrong("pickle", "is a pickle of Python: convert it");
    wrong("hdf5", "is of HDF5: convert it");
    wrong("lfs", "is a pointer of Git LFS");
  };
  {
    const auto wrong = with([](auto const& path) { io::read_matrix_market<float, single>(path); });
    wrong("npy", npy), wrong("npz", npz), wrong("safetensors", safetensors), wrong("smtx", smtx);
    wrong("json", json), wrong("mtx", ""), wrong("gzip", "compressed by gzip, byte "), others(wrong);
  }
  {
    const auto wrong = with([](auto const& path) { io::read_smtx(path); });
    wrong("npy", npy), wrong("npz", npz), wrong("safetensors", safetensors), wrong("mtx", mtx);
    wrong("json", json), wrong("smtx", ""), others(wrong);
  }
  {
    const auto wrong = with([](auto const& path) { io::read_scipy<float, single>(path); });
    wrong("npy", no_scipy), wrong("npz", no_scipy), wrong("safetensors", safetensors), wrong("mtx", mtx);
    wrong("smtx", smtx), wrong("json", json), wrong("gzip", gzip), wrong("scipy", ""), others(wrong);
  }
  {
    const auto wrong = with([](auto const& path) { const io::numpy_file file(path); });
    wrong("safetensors", safetensors), wrong("mtx", mtx), wrong("gzip", gzip), wrong("npy", ""),
        others(wrong);
  }
  {
    const auto wrong = with([](auto const& path) { const io::safetensors_file file(path); });
    wrong("npy", npy), wrong("npz", npz), wrong("mtx", mtx), wrong("gzip", gzip), wrong("json", json);
    wrong("safetensors", ""), others(wrong);
  }
  {
    const auto wrong = with([](auto const& path) { io::read_json(path); });
    wrong("npy", npy), wrong("safetensors", safetensors), wrong("gzip", gzip), wrong("json", "");
    others(wrong);
  }
}

TEST_CASE("file_format: texts that only resemble a format are of none") {
  for (const std::string_view text : {"", "{", "{}", "{\n\"\n", "[PAD]\n[UNK]\n", "1,2,3\n4,5,6\n", "PK",
                                      "BZ", "%MatrixMarker", "3, 4\n0 ", "\x80", "\x80\x06"}) {
    INFO(text);
    CHECK(io::format_of(std::as_bytes(std::span(text))).name == "");
  }
}

}  // namespace file_format_test
