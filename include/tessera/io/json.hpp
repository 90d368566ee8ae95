// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/io/text.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace io {

class json_place;
struct json_member;

/// A JSON value (RFC 8259). Integers of 64 bits, signed or not, stay exact: they are kept apart from doubles
/// and written without a point. Objects keep the order in which their members came.
class json {
 public:
  using array = std::vector<json>;
  using object = std::vector<json_member>;

  json() = default;  // null
  json(json const&);
  json(json&&) noexcept;
  json& operator=(json const&);
  json& operator=(json&&) noexcept;
  ~json();
  template <class Number>
    requires std::is_arithmetic_v<Number>
  json(Number number);
  json(std::string text);
  json(char const* text);
  json(array elements);
  json(object members);

  /// The value if it is held as a T, else null. T is bool, std::int64_t, std::uint64_t (only beyond
  /// std::int64_t), double, std::string, array or object.
  template <class T> T const* get_if() const { return std::get_if<T>(&value_); }
  template <class T> T* get_if() { return std::get_if<T>(&value_); }

  bool is_null() const { return value_.index() == 0; }

  /// The kind of the value, with its article: "an integer".
  char const* kind() const {
    constexpr std::array names{"null",     "a boolean", "an integer", "an integer",
                               "a number", "a string",  "an array",   "an object"};
    return names[value_.index()];
  }

  /// The member of an object, or null if there is none or this is no object. Looks through all members.
  json const* find(std::string_view key) const;

  /// The member of an object, made if there is none; null becomes an object first.
  json& operator[](std::string_view key);

  /// Typed access with errors that name the place: `settings.at("adam").at("rate").as_number()`. The
  /// place refers to this value.
  json_place at(std::string_view key) const;

  friend bool operator==(json const&, json const&);

 private:
  std::variant<std::nullptr_t, bool, std::int64_t, std::uint64_t, double, std::string, array, object> value_;
};

struct json_member {
  std::string key;
  json value;
  friend bool operator==(json_member const&, json_member const&) = default;
};

template <class Number>
  requires std::is_arithmetic_v<Number>
json::json(Number number) {
  if constexpr (std::same_as<Number, bool>)
    value_ = number;
  else if constexpr (std::floating_point<Number>)
    value_ = static_cast<double>(number);
  else if (std::in_range<std::int64_t>(number))
    value_ = static_cast<std::int64_t>(number);
  else
    value_ = static_cast<std::uint64_t>(number);
}

/// A value inside a document and the way to it, so that an error says where it is:
/// `[settings.json] adam.betas[1] is a string but should be a number`. Of a long way its end is kept. Refers
/// to the document.
class json_place {
 public:
  explicit json_place(json const& value, std::string document = "json", std::string path = {});

  json const& value() const { return *value_; }
  /// The document and the way, for errors of another kind: `settings.json: adam.betas[1]`.
  std::string name() const { return path_.empty() ? document_ : document_ + ": " + excerpt(path_); }

  json_place at(std::string_view key) const;
  json_place at(std::size_t index) const;
  /// One of members(), which need not be searched for.
  json_place at(json_member const& member) const;
  bool contains(std::string_view key) const { return value_->find(key) != nullptr; }
  std::size_t size() const { return elements().size(); }

  bool as_bool() const { return as<bool>("a boolean"); }
  std::string const& as_string() const { return as<std::string>("a string"); }
  json::array const& elements() const { return as<json::array>("an array"); }
  json::object const& members() const { return as<json::object>("an object"); }

  /// An integer that fits T.
  template <std::integral T = std::int64_t> T as_integer() const {
    if (auto const* n = value_->get_if<std::int64_t>(); n && std::in_range<T>(*n)) return static_cast<T>(*n);
    if (auto const* n = value_->get_if<std::uint64_t>(); n && std::in_range<T>(*n)) return static_cast<T>(*n);
    using limits = std::numeric_limits<T>;
    wrong(message("an integer from ", limits::min(), " to ", limits::max()));
  }

  /// A number, whole or not.
  double as_number() const;

  /// Throws io_error about this place: `[document] path` and the text.
  [[noreturn]] void fail(std::string const& what) const;

 private:
  template <class T> T const& as(char const* wanted) const {
    if (auto const* held = value_->get_if<T>()) return *held;
    wrong(wanted);
  }
  [[noreturn]] void wrong(std::string const& wanted) const;
  std::string members_text() const;

  static constexpr std::size_t longest_path = 99;

  json const* value_;
  std::string document_, path_;
};

/// The value as JSON: on one line, or indented by `indent` spaces a level. Reading it back gives an equal
/// value; doubles have the fewest digits for which that holds. Throws io_error for infinities, NaN, and
/// strings that are not UTF-8: JSON has no word for them.
std::string to_text(json const& value, int indent = 0);

#ifdef TESSERA_BODY

TESSERA_BODY json::json(json const&) = default;
TESSERA_BODY json::json(json&&) noexcept = default;
TESSERA_BODY json& json::operator=(json const&) = default;
TESSERA_BODY json& json::operator=(json&&) noexcept = default;
TESSERA_BODY json::~json() = default;
TESSERA_BODY json::json(std::string text) : value_(std::move(text)) {}
TESSERA_COLD TESSERA_BODY json::json(char const* text) : value_(std::in_place_type<std::string>, text) {}
TESSERA_BODY json::json(array elements) : value_(std::move(elements)) {}
TESSERA_BODY json::json(object members) : value_(std::move(members)) {}

TESSERA_BODY bool operator==(json const& a, json const& b) { return a.value_ == b.value_; }

TESSERA_BODY json const* json::find(std::string_view key) const {
  if (auto const* members = get_if<object>())
    for (json_member const& member : *members)
      if (member.key == key) return &member.value;
  return nullptr;
}

TESSERA_BODY json& json::operator[](std::string_view key) {
  if (is_null()) value_ = object{};
  auto* members = get_if<object>();
  if (!members) throw io_error(message("[json] ", kind(), " has no member ", in_quotes(key)));
  for (json_member& member : *members)
    if (member.key == key) return member.value;
  return members->emplace_back(json_member{std::string(key), {}}).value;
}

TESSERA_BODY json_place::json_place(json const& value, std::string document, std::string path)
    : value_(&value),
      document_(std::move(document)),
      path_(path.size() <= longest_path ? std::move(path) : "…" + path.substr(path.size() - longest_path)) {}

TESSERA_BODY json_place json_place::at(std::string_view key) const {
  json const* member = value_->find(key);
  if (!member) fail(message("has no member ", in_quotes(key), members_text()));
  return json_place(*member, document_, (path_.empty() ? path_ : path_ + ".") + std::string(key));
}

TESSERA_BODY json_place json_place::at(std::size_t index) const {
  if (index >= size()) fail(message("has ", size(), " elements, so none at index ", index));
  return json_place(elements()[index], document_, message(path_, "[", index, "]"));
}

TESSERA_BODY json_place json_place::at(json_member const& member) const {
  return json_place(member.value, document_, (path_.empty() ? path_ : path_ + ".") + member.key);
}

TESSERA_BODY double json_place::as_number() const {
  if (auto const* n = value_->get_if<std::int64_t>()) return static_cast<double>(*n);
  if (auto const* n = value_->get_if<std::uint64_t>()) return static_cast<double>(*n);
  return as<double>("a number");
}

TESSERA_BODY void json_place::fail(std::string const& what) const {
  throw io_error(message("[", document_, "] ", path_.empty() ? "the document" : excerpt(path_), " ", what));
}

TESSERA_BODY std::string json_place::members_text() const {
  auto const* members = value_->get_if<json::object>();
  if (!members || members->empty()) return message(", it is ", value_->kind());
  return "; it has " + some_of(*members, [](json_member const& member) { return in_quotes(member.key); });
}

TESSERA_BODY json_place json::at(std::string_view key) const { return json_place(*this).at(key); }

namespace detail {

TESSERA_BODY void append_json(std::string& out, std::string const& text) {
  constexpr std::string_view escaped = "\"\\\b\f\n\r\t", letters = "\"\\bfnrt", hex = "0123456789abcdef";
  out += '"';
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length(std::string_view(text).substr(i));
    if (length == 0) throw io_error(message("[json] byte ", i, " of a string is not UTF-8"));
    const auto code = static_cast<unsigned char>(text[i]);
    if (const std::size_t at = escaped.find(text[i]); at != std::string_view::npos)
      (out += '\\') += letters[at];
    else if (code < 0x20)
      ((out += "\\u00") += hex[code / 16]) += hex[code % 16];
    else
      out.append(text, i, length);
    i += length;
  }
  out += '"';
}

template <class Number> void append_json_number(std::string& out, Number number) {
  std::array<char, 32> digits;
  const std::string_view written(digits.data(),
                                 std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr);
  out += written;
  if constexpr (std::floating_point<Number>) {
    if (!(number - number == 0))
      throw io_error(message("[json] ", std::string(written), " is not a JSON number"));
    if (written.find_first_of(".e") == std::string_view::npos) out += ".0";
  }
}

/// `indent` 0 is one line; else members stand on lines of their own, and so do elements that are not scalars.
TESSERA_BODY void append_json(std::string& out, json const& value, int indent, int depth) {
  const auto line = [&](int level) {
    if (indent > 0) (out += '\n').append(static_cast<std::size_t>(indent * level), ' ');
  };
  if (auto const* text = value.get_if<std::string>()) {
    append_json(out, *text);
  } else if (auto const* elements = value.get_if<json::array>()) {
    bool scalars = true;
    for (json const& e : *elements) scalars &= !e.get_if<json::array>() && !e.get_if<json::object>();
    out += '[';
    for (json const& e : *elements) {
      if (&e != elements->data()) out += scalars && indent > 0 ? ", " : ",";
      if (!scalars) line(depth + 1);
      append_json(out, e, indent, depth + 1);
    }
    if (!scalars) line(depth);
    out += ']';
  } else if (auto const* members = value.get_if<json::object>()) {
    out += '{';
    for (json_member const& member : *members) {
      if (&member != members->data()) out += ',';
      line(depth + 1);
      append_json(out, member.key);
      out += indent > 0 ? ": " : ":";
      append_json(out, member.value, indent, depth + 1);
    }
    if (!members->empty()) line(depth);
    out += '}';
  } else if (auto const* truth = value.get_if<bool>()) {
    out += *truth ? "true" : "false";
  } else if (auto const* whole = value.get_if<std::int64_t>()) {
    append_json_number(out, *whole);
  } else if (auto const* large = value.get_if<std::uint64_t>()) {
    append_json_number(out, *large);
  } else if (auto const* number = value.get_if<double>()) {
    append_json_number(out, *number);
  } else {
    out += "null";
  }
}

}  // namespace detail

TESSERA_BODY std::string to_text(json const& value, int indent) {
  std::string out;
  detail::append_json(out, value, indent, 0);
  return out;
}

TESSERA_BODY void json_place::wrong(std::string const& wanted) const {
  const bool nested = value_->get_if<json::array>() || value_->get_if<json::object>();
  auto const* const text = value_->get_if<std::string>();
  fail(message("is ",
               nested ? value_->kind()
               : text ? in_quotes(*text)
                      : to_text(*value_),
               " but should be ", wanted));
}

#endif

}}}  // namespace tessera::TESSERA_ISA::io
