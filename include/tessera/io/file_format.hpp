// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/text.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace io {

/// A format of files in words: its name, and its reader or another use of such a file.
struct file_format {
  std::string_view name, advice;
};

/// The format that a file has by its first bytes; empty if they are of none that is known.
file_format format_of(std::span<std::byte const> file);

/// Throws io_error, `[read path] …`, for a file of another format that is known by its first bytes.
///   reader   the name of who reads here; a format whose advice names it is right
void refuse_other_format(std::string const& path, std::span<std::byte const> file, std::string_view reader);
void refuse_other_format(std::string const& path, std::string_view text, std::string_view reader);

#ifdef TESSERA_BODY

namespace detail {

/// Whether a text begins with a JSON object: a brace, a string and a colon.
TESSERA_BODY bool begins_json(std::string_view text) {
  const auto skip_blank = [&] {
    text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  };
  if (!text.starts_with('{')) return false;
  text.remove_prefix(1);
  skip_blank();
  const std::size_t end = text.substr(0, 1) == "\"" ? text.find('"', 1) : text.npos;
  if (end == text.npos) return false;
  text.remove_prefix(end + 1);
  skip_blank();
  return text.starts_with(':');
}

}  // namespace detail

TESSERA_COLD TESSERA_BODY file_format format_of(std::span<std::byte const> file) {
  constexpr std::string_view unpack = "unpack it first",
                             convert = "convert it in Python, by safetensors.numpy.save_file",
                             matrix_market = "a matrix of Matrix Market (.mtx)";
  struct mark {
    std::string_view begin;
    file_format of;
  };
  static constexpr std::array marks{
      mark{"\x93NUMPY", {"an array of NumPy (.npy)", "io::numpy_file reads it"}},
      mark{"PK\3\4",
           {"a zip archive, as .npz are", "io::numpy_file reads arrays of NumPy, io::read_scipy a matrix"}},
      mark{"\x1f\x8b",
           {"compressed by gzip", "unpack it first; io::read_matrix_market and io::read_smtx do that"}},
      mark{"BZh", {"compressed by bzip2", unpack}},
      mark{"\xfd\x37zXZ", {"compressed by xz", unpack}},
      mark{"\x28\xb5\x2f\xfd", {"compressed by zstd", unpack}},
      mark{"%%matrixmarket", {matrix_market, "io::read_matrix_market reads it"}},
      mark{"%matrixmarket", {matrix_market, "io::read_matrix_market reads it"}},
      mark{"\x89HDF\r\n", {"of HDF5", convert}},
      mark{"MATLAB 5.0 MAT-file", {"of MATLAB (.mat)", convert}},
      mark{"version https://git-lfs.", {"a pointer of Git LFS", "git lfs pull fetches the file itself"}},
      mark{"GGUF",
           {"of GGUF", "convert it in Python, by from_pretrained and save_pretrained of transformers"}}};
  constexpr std::size_t looked_at = 4096;
  const std::string_view begin(reinterpret_cast<char const*>(file.data()), std::min(file.size(), looked_at));
  // The length of a header of safetensors may be a mark of another format.
  constexpr std::uint64_t longest_header = 100'000'000;
  std::uint64_t header = 0;
  if (begin.size() > sizeof(header)) std::memcpy(&header, begin.data(), sizeof(header));
  if (header >= 2 && header <= longest_header && begin[sizeof(header)] == '{')
    return {"of safetensors", "io::safetensors_file reads it"};
  if (begin.starts_with("PK\3\4") && begin.substr(0, 100).find("/data.pkl") != begin.npos)
    return {"of torch.save", "save its tensors in Python, by safetensors.torch.save_file"};
  std::string first_word(begin.substr(0, 14));
  std::transform(first_word.begin(), first_word.end(), first_word.begin(), lower_case);
  for (mark const& one : marks)
    if (begin.starts_with(one.begin) || first_word.starts_with(one.begin)) return one.of;
  if (begin.size() >= 2 && begin[0] == '\x80' && begin[1] >= '\2' && begin[1] <= '\5')
    return {"a pickle of Python", convert};
  if (detail::begins_json(begin)) return {"of JSON", "io::read_json reads it"};
  const std::string_view line = begin.substr(0, begin.find('\n')), next = begin.substr(line.size());
  if (line.find_first_not_of("0123456789, \r") == line.npos &&
      std::count(line.begin(), line.end(), ',') == 2 &&
      (next.starts_with("\n0 ") || next.starts_with("\n0\n")))
    return {"a pattern of .smtx", "io::read_smtx reads it"};
  return {};
}

TESSERA_COLD TESSERA_BODY void refuse_other_format(std::string const& path, std::span<std::byte const> file,
                                                   std::string_view reader) {
  const file_format found = format_of(file);
  if (!found.name.empty() && found.advice.find(reader) == found.advice.npos)
    throw io_error(
        message("[read ", path, "] is ", std::string(found.name), ": ", std::string(found.advice)));
}

TESSERA_BODY void refuse_other_format(std::string const& path, std::string_view text,
                                      std::string_view reader) {
  refuse_other_format(path, std::as_bytes(std::span(text)), reader);
}

#endif

}}}  // namespace tessera::TESSERA_ISA::io
