// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "format.hpp"
#include "options.hpp"

namespace programs {

/// The text after the name of an option that takes a value: "N" for a whole number, or its words.
template <class Settings> std::string placeholder(option<Settings> const& row) {
  if (!is_interval(row.values))
    return std::string(row.values) + (row.template holds<string_list>() ? "…" : "");
  return row.template holds<seconds>() ? "TIME" : row.template holds<double>() ? "X" : "N";
}

/// The default of an option, or "" if it is to do nothing.
template <class Settings> std::string default_text(option<Settings> const& row) {
  const Settings defaults;
  return std::visit(
      [&](auto member) -> std::string {
        auto const& value = defaults.*member;
        using type = std::remove_cvref_t<decltype(value)>;
        if constexpr (std::is_same_v<type, std::string>)
          return value;
        else if constexpr (std::is_same_v<type, seconds>)
          return duration_text(value);
        else if constexpr (std::is_same_v<type, bool> || std::is_same_v<type, string_list>)
          return "";
        else
          return number(static_cast<double>(value));
      },
      row.member);
}

/// `head` and, beside it or, where it is long, below it, from column 28 on `words`, broken before column 96.
inline std::string help_entry(std::string const& head, std::string const& words) {
  constexpr std::size_t column = 28, width = 96;
  std::string all, line = padded("  " + head + "  ", column);
  if (text_width(line) > column) all = "  " + head + "\n", line = std::string(column, ' ');
  std::istringstream stream(words);
  for (std::string word; stream >> word;) {
    if (line.size() + word.size() > width) all += line + "\n", line = std::string(column, ' ');
    if (line.back() != ' ') line += ' ';
    line += word;
  }
  return all + line + "\n";
}

/// The explanation of every option, or of the options that a command uses, from the table and the default
/// settings alone.
template <class Settings>
std::string help_text(option_table<Settings> const& table, std::string_view command = {}) {
  std::string all;
  for (auto const& group : table) {
    bool is_first = true;
    for (auto const& row : group.options) {
      if (!command.empty() && !among(row.commands, command)) continue;
      if (std::exchange(is_first, false)) all.append("\n").append(group.title).append("\n");
      std::string words(row.help);
      if (is_interval(row.values)) words.append("; in ").append(row.values);
      if (const std::string value = default_text(row); !value.empty())
        words.append("; by default ").append(value);
      if (command.empty() && !row.commands.empty()) {
        words += "; of ";
        for (const char c : row.commands) words += c == '|' ? std::string(", ") : std::string(1, c);
      }
      const std::string shown = placeholder(row);
      std::string head = "--";
      head += row.name;
      if (!shown.empty()) head.append(" ").append(shown);
      all += help_entry(head, words);
    }
  }
  return all;
}

}  // namespace programs
