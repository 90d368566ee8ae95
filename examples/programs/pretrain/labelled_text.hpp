// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/io/file.hpp>
#include <tessera/io/text.hpp>

#include "model.hpp"
#include "text.hpp"
#include "vocabulary.hpp"

namespace pretrain {

/// A text and the name of its class, from line `number` of a file.
struct labelled_line {
  std::string label, text;
  int number;
};

/// Reads a file of lines LABEL, a tab, TEXT. Throws io_error for a line of another form, by its number.
inline std::vector<labelled_line> read_labelled(std::string const& path) {
  require_no_folder("labels", path);
  const std::string all = tessera::io::read_file(path, all_memory());
  std::vector<labelled_line> lines;
  int number = 0;
  std::string_view rest = without_byte_order_mark(all);
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const std::size_t tab = line.find('\t');
    if (tab == 0 || tab == line.npos || tab + 1 == line.size())
      throw tessera::io_error(
          tessera::message("[labels] ", path, " line ", number, ": a label, a tab and a text are meant"));
    if (const std::string fault = text_fault(line, text_level::character); !fault.empty())
      throw tessera::io_error(tessera::message("[labels] ", path, " line ", number, " ", fault));
    lines.push_back({std::string(line.substr(0, tab)), std::string(line.substr(tab + 1)), number});
  }
  if (lines.empty()) throw tessera::io_error(tessera::message("[labels] ", path, " has no lines"));
  return lines;
}

/// A text between [CLS] and [SEP], cut to `most` tokens.
inline std::vector<token> framed(tessera::tokenizers::wordpiece const& words, std::string_view text,
                                 std::size_t most) {
  std::vector<token> tokens = words.encode(text);
  tokens.resize(std::min(tokens.size(), most - 2));
  tokens.insert(tokens.begin(), words.classification());
  tokens.push_back(words.separator());
  return tokens;
}

/// Texts as tokens, with the numbers of their classes.
class labelled_text {
 public:
  /// The lines of the file `path`. Throws option_error for a label that is not one of `classes`.
  labelled_text(std::string const& path, std::vector<labelled_line> const& lines,
                std::vector<std::string> const& classes, tessera::tokenizers::wordpiece const& words,
                int context) {
    for (labelled_line const& line : lines) {
      const auto at = std::lower_bound(classes.begin(), classes.end(), line.label);
      if (at == classes.end() || *at != line.label)
        throw tessera::option_error(tessera::message("[labels] ", path, " line ", line.number, ": ",
                                                     tessera::io::in_quotes(line.label),
                                                     " is in no line to train on"));
      const std::size_t most = static_cast<std::size_t>(context);
      cut_ += words.encode(line.text).size() + 2 > most;
      tokens_.push_back(framed(words, line.text, most));
      labels_.push_back(static_cast<std::int32_t>(at - classes.begin()));
    }
  }
  std::size_t size() const { return tokens_.size(); }
  std::size_t cut() const { return cut_; }  // texts that were longer than the context

  void add(std::size_t i, batch& to) const {
    to.lengths.push_back(std::ssize(tokens_[i]));
    to.inputs.insert(to.inputs.end(), tokens_[i].begin(), tokens_[i].end());
    to.labels.push_back(labels_[i]);
  }
  /// The share whose class a model finds.
  double accuracy(model& of, std::size_t at_once) const {
    std::size_t right = 0;
    for (std::size_t first = 0; first < size(); first += at_once) {
      batch shown;
      for (std::size_t i = first; i < std::min(size(), first + at_once); ++i) add(i, shown);
      of.prompt.insert(shown);
      const std::vector<float> logits = of.network->sequence_logits(shown, {of.ctx, nn::purpose::evaluation});
      const std::size_t classes = logits.size() / shown.labels.size();
      for (std::size_t i = 0; i < shown.labels.size(); ++i) {
        const auto its = logits.begin() + std::ptrdiff_t(i * classes);
        right += std::max_element(its, its + std::ptrdiff_t(classes)) - its == shown.labels[i];
      }
    }
    return static_cast<double>(right) / static_cast<double>(size());
  }

 private:
  std::vector<std::vector<token>> tokens_;
  std::vector<std::int32_t> labels_;
  std::size_t cut_ = 0;
};

/// The names of the classes, in order.
inline std::vector<std::string> classes_of(std::vector<labelled_line> const& lines) {
  std::set<std::string> names;
  for (labelled_line const& line : lines) names.insert(line.label);
  return {names.begin(), names.end()};
}

}  // namespace pretrain
