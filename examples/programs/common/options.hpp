// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/io/json.hpp>
#include <tessera/io/text.hpp>

#include "option_values.hpp"

// The options of a program are a plain struct of settings, whose initialisers are the defaults, and one table
// with a row for each. The command line, --help, settings files and the settings stored with a run all follow
// from that table.

namespace programs {

using string_list = std::vector<std::string>;

/// How an option relates to a run that is stored and resumed.
enum class option_role {
  run,      ///< decides about results: a resumed run must keep it
  session,  ///< may differ when the run is resumed
  command   ///< for this call alone: not stored
};

template <class Settings> struct option {
  std::string_view name;  ///< "batch": --batch in a command, "batch" in a settings file
  std::variant<bool Settings::*, int Settings::*, std::uint64_t Settings::*, double Settings::*,
               seconds Settings::*, std::string Settings::*, string_list Settings::*>
      member;
  std::string_view values;  ///< an interval, words to choose from, or the name of any text
  std::string_view help;
  option_role role = option_role::run;
  std::string_view commands = {};  ///< of a program, that use the option, "plan|map"; or all

  template <class T> bool holds() const { return std::holds_alternative<T Settings::*>(member); }
};

template <class Settings> struct option_group {
  std::string_view title;
  std::vector<option<Settings>> options;
};

template <class Settings> using option_table = std::vector<option_group<Settings>>;

/// The values that an option was given, and where: "--batch", or "settings.json: batch".
struct given_option {
  std::string name;
  string_list values;
  std::string where;
};

inline bool is_said(std::vector<given_option> const& given, std::string_view name) {
  return std::any_of(given.begin(), given.end(), [&](given_option const& one) { return one.name == name; });
}

[[noreturn]] inline void refuse(std::string const& where, std::string const& why) {
  throw tessera::option_error("[" + where + "] " + why);
}

/// The row of an option; throws option_error with the nearest name if there is none.
template <class Settings>
option<Settings> const& find_option(option_table<Settings> const& table, std::string_view name,
                                    std::string const& where) {
  std::string_view nearest;
  std::size_t least = 1 + name.size() / 3;  // further away it would be a guess
  for (auto const& group : table)
    for (auto const& candidate : group.options) {
      const std::size_t distance = edit_distance(name, candidate.name);
      if (distance == 0) return candidate;
      if (distance <= least) least = distance, nearest = candidate.name;
    }
  const std::string dashes = where.starts_with("--") ? "--" : "";
  refuse(where, nearest.empty()
                    ? dashes.empty() ? "there is no such setting; the file may be of a newer version"
                                     : "there is no such option; --help lists all"
                    : "there is no such option; did you mean " + dashes + std::string(nearest) + "?");
}

/// Stores the value that was given; throws option_error that names right ones.
template <class Settings>
void assign(option<Settings> const& row, Settings& settings, given_option const& given) {
  const auto store = [&](auto member) {
    auto& value = settings.*member;
    if constexpr (std::is_same_v<decltype(value), string_list&>) {
      value = given.values;
    } else {
      if (given.values.size() != 1) refuse(given.where, "takes one value, not a list");
      const std::string wanted = read_value_of(row.values, given.values[0], value);
      if (!wanted.empty())
        refuse(given.where, "'" + tessera::io::excerpt(given.values[0]) + "' is not " + wanted);
    }
  };
  std::visit(store, row.member);
}

template <class Settings>
void assign(option_table<Settings> const& table, Settings& settings, std::vector<given_option> const& all) {
  for (given_option const& given : all) {
    for (std::string const& value : given.values)
      if (value.find('\0') != value.npos) refuse(given.where, "has a zero byte, where it would end");
    assign(find_option(table, given.name, given.where), settings, given);
  }
}

/// Reads a command's arguments: --name value, --name=value, and --name alone for true or false. A list takes
/// every word up to the next option.
template <class Settings>
std::vector<given_option> read_arguments(option_table<Settings> const& table, string_list const& arguments) {
  const auto is_value = [&](std::size_t i) {
    return i < arguments.size() && !arguments[i].starts_with("--");
  };
  std::vector<given_option> all;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string argument = arguments[i] == "-h" ? "--help" : arguments[i];
    if (!argument.starts_with("--"))
      refuse(tessera::io::excerpt(argument), "options begin with --; --help lists all");
    const std::size_t equals = argument.find('=');
    given_option given{argument.substr(2, equals == argument.npos ? equals : equals - 2), {}, ""};
    given.where = "--" + tessera::io::excerpt(given.name);
    option<Settings> const& row = find_option(table, given.name, given.where);
    const bool list = row.template holds<string_list>();
    if (equals != std::string::npos)
      given.values = {argument.substr(equals + 1)};
    else if (row.template holds<bool>())
      given.values = {"true"};
    else if (is_value(i + 1))
      do given.values.push_back(arguments[++i]);
      while (list && is_value(i + 1));
    else
      refuse(given.where, "needs a value: " + std::string(row.values));
    const auto earlier =
        std::find_if(all.begin(), all.end(), [&](auto const& g) { return g.name == given.name; });
    if (list && earlier != all.end())
      earlier->values.insert(earlier->values.end(), given.values.begin(), given.values.end());
    else
      all.push_back(given);
  }
  return all;
}

/// Throws option_error for an option that was given and that a command of the program does not use.
template <class Settings>
void require_used(option_table<Settings> const& table, std::vector<given_option> const& all,
                  std::string_view command) {
  for (given_option const& given : all)
    if (const std::string_view used = find_option(table, given.name, given.where).commands;
        !among(used, command)) {
      std::string commands;
      for (const char c : used) commands += c == '|' ? std::string(", ") : std::string(1, c);
      refuse(given.where,
             "is not used by " + std::string(command) + ", but by " + commands + "; leave it out");
    }
}

/// What an option wants of a settings file that has another kind of value for it; "" if it has the right one.
template <class Settings>
std::string kind_wanted(option<Settings> const& row, tessera::io::json const& value) {
  using tessera::io::json;
  const bool text = value.get_if<std::string>() != nullptr,
             number = value.get_if<std::int64_t>() || value.get_if<std::uint64_t>() || value.get_if<double>();
  if (row.template holds<bool>()) return value.get_if<bool>() ? "" : "true or false";
  if (row.template holds<std::string>()) return text ? "" : "a text";
  if (row.template holds<seconds>())
    return text || number ? "" : "a number of seconds, or a text such as \"3m\"";
  if (!row.template holds<string_list>()) return number ? "" : "a number";
  auto const* const all = value.get_if<json::array>();
  const bool texts = all && std::all_of(all->begin(), all->end(), [](json const& each) {
                       return each.get_if<std::string>() != nullptr;
                     });
  return text || texts ? "" : "a text, or a list of texts";
}

/// Reads a JSON object of settings; `document` names it in errors. Throws option_error for a name that the
/// table has not, and for a value of another kind than its option takes.
template <class Settings>
std::vector<given_option> read_json(option_table<Settings> const& table, tessera::io::json const& object,
                                    std::string const& document) {
  using tessera::io::json;
  const auto text = [](json const& value) {
    auto const* string = value.get_if<std::string>();
    return string ? *string : tessera::io::to_text(value);
  };
  std::vector<given_option> all;
  for (auto const& [name, value] : tessera::io::json_place(object, document).members()) {
    given_option& given =
        all.emplace_back(given_option{name, {}, document + ": " + tessera::io::excerpt(name)});
    const std::string wanted = kind_wanted(find_option(table, name, given.where), value);
    if (!wanted.empty()) refuse(given.where, "takes " + wanted + ", not " + value.kind());
    if (auto const* elements = value.template get_if<json::array>())
      std::transform(elements->begin(), elements->end(), std::back_inserter(given.values), text);
    else
      given.values = {text(value)};
  }
  return all;
}

/// All options but commands, as a JSON object that read_json understands. Times are in seconds.
template <class Settings>
tessera::io::json to_json(option_table<Settings> const& table, Settings const& settings) {
  tessera::io::json object = tessera::io::json::object{};
  for (auto const& group : table)
    for (auto const& row : group.options) {
      if (row.role == option_role::command) continue;
      object[row.name] = std::visit(
          [&](auto member) -> tessera::io::json {
            auto const& value = settings.*member;
            if constexpr (std::is_same_v<decltype(value), seconds const&>)
              return value.count();
            else if constexpr (std::is_same_v<decltype(value), string_list const&>)
              return tessera::io::json::array(value.begin(), value.end());
            else
              return value;
          },
          row.member);
    }
  return object;
}

/// Throws option_error if an option of the run itself has another value than before.
template <class Settings>
void require_unchanged(option_table<Settings> const& table, Settings const& stored, Settings const& now) {
  const tessera::io::json before = to_json(table, stored), after = to_json(table, now);
  for (auto const& group : table)
    for (auto const& row : group.options)
      if (row.role == option_role::run && *before.find(row.name) != *after.find(row.name))
        refuse("--" + std::string(row.name),
               "is " + tessera::io::to_text(*before.find(row.name)) + " in the run to be resumed, not " +
                   tessera::io::to_text(*after.find(row.name)) + "; leave it out, or start a new run");
}

}  // namespace programs
