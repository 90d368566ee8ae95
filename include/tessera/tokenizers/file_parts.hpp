// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/json.hpp>
#include <tessera/io/text.hpp>

// What the readers of the parts of a tokenizer.json share: a part that they do not know is refused by name.

namespace tessera { inline namespace TESSERA_ISA { namespace tokenizers { namespace detail {

/// Throws io_error for a member of an object that is none of these.
inline void allow_members(io::json_place const& at, std::initializer_list<std::string_view> known) {
  for (io::json_member const& member : at.members())
    if (std::find(known.begin(), known.end(), member.key) == known.end())
      at.fail("has a member " + io::in_quotes(member.key) + ", which is not known");
}

/// Whether an object has a member that is not null.
inline bool has(io::json_place const& at, std::string_view key) {
  return at.contains(key) && !at.at(key).value().is_null();
}
inline bool bool_or(io::json_place const& at, std::string_view key, bool otherwise) {
  return has(at, key) ? at.at(key).as_bool() : otherwise;
}

/// Throws io_error for a kind of part that is not known.
[[noreturn]] inline void refuse_type(io::json_place const& at, std::string const& known) {
  at.fail("is of type " + io::in_quotes(at.at("type").as_string()) +
          ", which is not known; types that are: " + known);
}

/// Calls read(part) for a part, or for the parts of a Sequence, in its member `parts`.
///   left   how many there may be
template <class Read>
void read_parts(io::json_place const& at, std::string_view parts, std::size_t& left, Read&& read) {
  if (at.at("type").as_string() == "Sequence") {
    allow_members(at, {"type", parts});
    const auto all = at.at(parts);
    for (std::size_t i = 0; i < all.size(); ++i) read_parts(all.at(i), parts, left, read);
  } else {
    if (left == 0) at.fail("is one part too many: a text would take too long");
    --left;
    read(at);
  }
}
/// Of a member of a file, which may lack it.
template <class Read>
void read_parts(io::json_place const& file, std::string_view name, std::string_view parts, Read&& read) {
  std::size_t left = 20;
  if (has(file, name)) read_parts(file.at(name), parts, left, read);
}

/// How many times as long texts may become: small files do not make large texts of small ones.
class text_growth {
 public:
  static constexpr std::size_t most = 100;

  /// Throws io_error if it becomes too much.
  void multiply(io::json_place const& at, std::size_t from, std::size_t to) {
    so_far_ *= std::max<std::size_t>(1, (to + from - 1) / from);
    if (to > most * from || so_far_ > most)
      at.fail(message("makes a text more than ", most, " times as long"));
  }

 private:
  std::size_t so_far_ = 1;
};

/// The text of a pattern that is no expression, as `"pattern": {"String": " "}`.
inline std::string const& string_pattern(io::json_place const& at) {
  allow_members(at, {"String"});
  std::string const& text = at.at("String").as_string();
  if (text.empty()) at.at("String").fail("is empty");
  return text;
}

inline std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  for (std::size_t at = text.find(from); at != text.npos; at = text.find(from)) {
    result.append(text.substr(0, at)).append(to);
    text.remove_prefix(at + from.size());
  }
  return result.append(text);
}

}}}}  // namespace tessera::TESSERA_ISA::tokenizers::detail
