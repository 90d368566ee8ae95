// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/error.hpp>
#include <tessera/io/file.hpp>
#include <tessera/io/json.hpp>
#include <tessera/io/json_parser.hpp>
#include <tessera/nn/cross_entropy.hpp>

#include "model.hpp"
#include "text.hpp"
#include "vocabulary.hpp"

namespace pretrain {

/// What a model is asked to do.
struct instruction {
  std::string text, input;
};

/// The text that comes before a response.
///   form   "alpaca": the words of Stanford Alpaca (Taori et al. 2023); "brief": their headings alone
inline std::string prompt_of(instruction const& asked, std::string_view form) {
  const bool has_input = !asked.input.empty();
  std::string text;
  if (form == "alpaca")
    text = has_input ? "Below is an instruction that describes a task, paired with an input that provides "
                       "further context. Write a response that appropriately completes the request.\n\n"
                     : "Below is an instruction that describes a task. Write a response that appropriately "
                       "completes the request.\n\n";
  text += "### Instruction:\n" + asked.text + "\n\n";
  if (has_input) text += "### Input:\n" + asked.input + "\n\n";
  return text + "### Response:";
}

/// The tokens that say that a response is over: as between documents, or an empty line.
inline std::vector<token> end_of_response(vocabulary const& symbols) {
  std::vector<token> end = symbols.between_documents();
  if (end.empty() && symbols.symbols().find('\n') != std::string::npos) end = symbols.encode("\n\n");
  return end;
}

/// Instructions and responses as tokens, of which a decoder learns the tokens of the response
/// alone, and the end.
class instruction_text {
 public:
  /// The file `path`: [{"instruction": "…", "input": "…", "output": "…"}, …], where "input" may be missing.
  /// Throws io_error for another form, and option_error, with the number of the example, for symbols that the
  /// model does not know, and if no prompt leaves room for a response.
  instruction_text(std::string const& path, vocabulary const& symbols, int context, std::string_view form) {
    require_no_folder("instructions", path);
    const std::string bytes = tessera::io::read_file(path, all_memory());
    const tessera::io::json document = tessera::io::parse_json(without_byte_order_mark(bytes), path);
    const tessera::io::json_place all(document, path);
    const std::vector<token> end = end_of_response(symbols);
    require_template(symbols, form);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto each = all.at(i);
      const instruction asked{each.at("instruction").as_string(),
                              has_input(each) ? each.at("input").as_string() : std::string()};
      std::string const& output = each.at("output").as_string();
      try {
        add_example(symbols.encode(prompt_of(asked, form)), symbols.encode(output), end, context);
      } catch (tessera::option_error const& fault) {
        throw tessera::option_error(
            tessera::message("[instructions] ", path, " example ", i + 1, ": ", fault.what()));
      }
    }
    if (examples_.empty())
      throw tessera::option_error(tessera::message(
          "[instructions] ", path,
          all.size() == 0 ? " has no examples"
                          : tessera::message(": no prompt leaves room for a response in the ", context,
                                             " tokens of the context",
                                             form == "alpaca" ? "; --template brief is shorter" : "")));
  }

  std::size_t size() const { return examples_.size(); }
  std::size_t cut() const { return cut_; }            // responses that the context does not hold whole
  std::size_t left_out() const { return left_out_; }  // examples whose prompt fills the context

  void add(std::size_t i, batch& to) const {
    example const& its = examples_[i];
    to.lengths.push_back(std::ssize(its.tokens) - 1);
    to.inputs.insert(to.inputs.end(), its.tokens.begin(), its.tokens.end() - 1);
    to.targets.insert(to.targets.end(), its.prompt - 1, nn::ignored);
    to.targets.insert(to.targets.end(), its.tokens.begin() + std::ptrdiff_t(its.prompt), its.tokens.end());
  }

 private:
  /// Whether an example has an input that is not null.
  static bool has_input(tessera::io::json_place const& at) {
    return at.contains("input") && !at.at("input").value().is_null();
  }
  /// Throws option_error if a model does not know the symbols around an instruction.
  static void require_template(vocabulary const& symbols, std::string_view form) {
    try {
      static_cast<void>(symbols.encode(prompt_of({"", ""}, form)));
    } catch (tessera::option_error const& fault) {
      throw tessera::option_error(
          tessera::message("[instructions] the headings of --template ", std::string(form),
                           " have symbols that this model was not trained on: ", fault.what()));
    }
  }

  struct example {
    std::vector<token> tokens;
    std::size_t prompt;  // how many of them
  };

  void add_example(std::vector<token> tokens, std::vector<token> const& response,
                   std::vector<token> const& end, int context) {
    const std::size_t prompt = tokens.size(), most = static_cast<std::size_t>(context) + 1;
    if (prompt >= most) {
      ++left_out_;
      return;
    }
    tokens.insert(tokens.end(), response.begin(), response.end());
    tokens.insert(tokens.end(), end.begin(), end.end());
    cut_ += tokens.size() > most;
    tokens.resize(std::min(tokens.size(), most));
    if (tokens.size() > prompt) examples_.push_back({std::move(tokens), prompt});
  }

  std::vector<example> examples_;
  std::size_t cut_ = 0, left_out_ = 0;
};

}  // namespace pretrain
