// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <unistd.h>

#include <tessera/core/error.hpp>
#include <tessera/core/hash.hpp>
#include <tessera/io/file.hpp>
#include <tessera/io/memory_limit.hpp>
#include <tessera/io/read_json.hpp>
#include <tessera/io/text.hpp>

#include "vocabulary.hpp"
#include "windows.hpp"

namespace pretrain {

/// The text of a run before it becomes tokens.
struct corpus {
  std::string training, validation;
  std::string source;                                                 ///< for people: where it came from
  std::vector<std::size_t> training_ends = {}, validation_ends = {};  ///< of the documents; none: all is one
};

/// Where one document of a file ends and the next begins.
enum class documents { files, blank_lines };

/// A text as the tokens of a vocabulary.
struct token_text {
  vocabulary symbols;
  std::vector<token> training, validation;
  double bytes_per_token;  ///< of the validation part: turns nats per token into bits per byte
  std::uint64_t hash;      ///< of both parts: a run is resumed on this text alone
  std::vector<std::size_t> training_ends = {}, validation_ends = {};  ///< of the documents
};

/// The reason why `bytes` are no text at this level, or "": a NUL; at character level any byte that is not
/// UTF-8, at byte level (Latin-1 is welcome there) more than a tenth of such bytes.
inline std::string text_fault(std::string_view bytes, text_level level) {
  if (const std::size_t nul = bytes.find('\0'); nul != bytes.npos)
    return tessera::message("is binary: byte ", nul, " is zero");
  std::size_t strangers = 0, first = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t length = tessera::io::utf8_length(bytes.substr(at));
    if (length == 0 && strangers++ == 0) first = at;
    at += std::max<std::size_t>(1, length);
  }
  if (strangers > bytes.size() / 10)
    return tessera::message("is binary: ", strangers, " of its ", bytes.size(), " bytes are not UTF-8");
  if (strangers > 0 && level == text_level::character)
    return tessera::message("is not UTF-8 at byte ", first, "; convert it, or use --level byte");
  return "";
}

/// Text without the mark that editors on Windows write before it.
inline std::string_view without_byte_order_mark(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  return text;
}

/// The last place not after `at` where a character begins.
inline std::size_t character_start(std::string_view text, std::size_t at) {
  for (int i = 0; i < 3 && at > 0 && at < text.size() && (text[at] & 0xC0) == 0x80; ++i) --at;
  return at;
}

/// Adds a part of a file, and the ends of the documents in it.
inline void add_documents(std::string_view part, documents divided, std::string& text,
                          std::vector<std::size_t>& ends) {
  const auto end_document = [&] {
    if (!text.empty() && (ends.empty() || ends.back() < text.size())) ends.push_back(text.size());
  };
  constexpr std::string_view spaces = " \t\r\n";
  for (std::size_t line = 0;
       divided == documents::blank_lines && (line = part.find('\n', line)) != part.npos;) {
    const std::size_t next = std::min(part.find_first_not_of(spaces, line), part.size());
    const std::string_view between = part.substr(line, next - line);
    if (std::count(between.begin(), between.end(), '\n') < 2) {
      line = next;
      continue;
    }
    text.append(part, 0, line + 1);
    end_document();
    part.remove_prefix(line + between.rfind('\n') + 1);  // a document may begin with spaces
    line = 0;
  }
  text += part;
  end_document();
}

/// The limit of a text that the user names: the memory of this machine.
inline tessera::io::memory_limit all_memory() {
  return {std::uint64_t(sysconf(_SC_PHYS_PAGES)) * std::uint64_t(sysconf(_SC_PAGE_SIZE))};
}

/// Throws io_error for a folder where a file is meant.
inline void require_no_folder(char const* what, std::string const& path) {
  std::error_code unknown;
  if (std::filesystem::is_directory(path, unknown))
    throw tessera::io_error(tessera::message("[", what, "] ", path,
                                             " is a folder; name the files in it, as the "
                                             "shell does for ",
                                             path, path.ends_with('/') ? "*" : "/*"));
}

/// Throws io_error for a path that is not of a file to be read.
inline void require_files(std::vector<std::string> const& paths) {
  for (std::string const& path : paths) {
    require_no_folder("text", path);
    const tessera::io::mapped_file opened(path);
  }
}

/// Files of the user's choice: the last tenth of each validates.
inline corpus read_files(std::vector<std::string> const& paths, text_level level,
                         documents divided = documents::files) {
  corpus all;
  require_files(paths);
  for (std::string const& path : paths) {
    const std::string bytes = tessera::io::read_file(path, all_memory());
    const std::string_view text = without_byte_order_mark(bytes);
    if (text.empty()) throw tessera::io_error(tessera::message("[text] ", path, " is empty"));
    if (const std::string fault = text_fault(bytes, level); !fault.empty())
      throw tessera::io_error(tessera::message("[text] ", path, " ", fault));
    const std::size_t cut = character_start(text, text.size() - (text.size() + 9) / 10);
    add_documents(text.substr(0, cut), divided, all.training, all.training_ends);
    add_documents(text.substr(cut), divided, all.validation, all.validation_ends);
  }
  constexpr std::size_t named = 3;
  for (std::size_t i = 0; i < std::min(paths.size(), named); ++i)
    all.source += (i == 0 ? "" : ", ") + paths[i];
  if (paths.size() > named) all.source += tessera::message(" and ", paths.size() - named, " more");
  return all;
}

/// The files git tracks below `root`; none where there is no git or no checkout.
inline std::vector<std::string> tracked_files(std::filesystem::path const& root) {
  std::string quoted;
  for (const char c : root.string()) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  const std::string command = "git -C '" + quoted + "' ls-files -z 2>/dev/null";
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::vector<std::string> names(1);
  for (int c = 0; pipe && (c = std::fgetc(pipe.get())) != EOF;) {
    if (c == 0)
      names.emplace_back();
    else
      names.back() += static_cast<char>(c);
  }
  names.pop_back();
  return names;
}

/// The project's sources and documents below `root`, in sorted order: of the files that git tracks, or, in an
/// unpacked archive, of all files in the folders of the project, the ones that are source or prose by name.
inline std::vector<std::string> repository_files(std::filesystem::path const& root) {
  constexpr std::array folders{"include", "tests", "benchmarks", "examples", "docs", "cmake"};
  constexpr std::array kinds{".hpp", ".cpp", ".py", ".md", ".cmake"};
  std::vector<std::string> names = tracked_files(root);
  if (names.empty())
    for (const char* folder : folders) {
      std::error_code absent;
      for (auto const& entry : std::filesystem::recursive_directory_iterator(root / folder, absent))
        names.push_back(entry.path().lexically_relative(root).generic_string());
    }
  std::erase_if(names, [&](std::string const& name) {
    const std::string kind = std::filesystem::path(name).extension().string();
    return std::find(kinds.begin(), kinds.end(), kind) == kinds.end() ||
           name.starts_with("single_include/") ||  // the text of include/ once more
           !std::filesystem::is_regular_file(root / name);
  });
  std::sort(names.begin(), names.end());
  return names;
}

/// The text that is always there: the project's own sources and documents, cut into chunks of 4 KiB. A chunk
/// validates if its hash says so, one in ten, so an edit of one file moves no chunk of another, and equal
/// chunks lie on one side.
inline corpus read_repository(std::filesystem::path const& root) {
  constexpr std::size_t chunk_bytes = 4096;
  const std::vector<std::string> names = repository_files(root);
  corpus all;
  all.source = tessera::message("the ", names.size(), " sources and documents of ", root.string());
  for (std::string const& name : names) {
    const std::string file = tessera::io::read_file((root / name).string());
    if (!text_fault(file, text_level::character).empty()) continue;
    for (std::string_view rest = file; !rest.empty();) {
      const std::string_view chunk =
          rest.substr(0, character_start(rest, std::min(chunk_bytes, rest.size())));
      if (tessera::content_hash(chunk) % 10 == 0)
        add_documents(chunk, documents::files, all.validation, all.validation_ends);
      else
        add_documents(chunk, documents::files, all.training, all.training_ends);
      rest.remove_prefix(chunk.size());
    }
  }
  if (all.training.empty())
    throw tessera::io_error(tessera::message("[text] there are no sources or documents in ", root.string(),
                                             "; name a text with --text FILE"));
  return all;
}

/// The tokens of a text, document by document, with the tokens that stand between documents.
inline std::vector<token> encode_documents(std::string_view text, std::vector<std::size_t> ends,
                                           vocabulary const& symbols, std::vector<token> const& between,
                                           std::vector<std::size_t>& token_ends) {
  if (ends.empty() && !text.empty()) ends.push_back(text.size());
  std::vector<token> tokens;
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    const std::vector<token> more = symbols.encode(text.substr(begin, end - begin));
    begin = end;
    if (more.empty()) continue;
    tokens.insert(tokens.end(), more.begin(), more.end());
    tokens.insert(tokens.end(), between.begin(), between.end());
    token_ends.push_back(tokens.size());
  }
  return tokens;
}

/// What a model is to say of a token: which one follows, or which one was masked.
enum class objective { next_token, masked_token };

/// Throws option_error if a part of the text is shorter than one window of `context` + 1 tokens, or has fewer
/// documents than `documents`.
inline token_text tokenize(corpus const& text, vocabulary const& symbols, int context,
                           objective wanted = objective::next_token, std::size_t documents = 0) {
  const auto between = wanted == objective::next_token ? symbols.between_documents() : std::vector<token>{};
  token_text result{symbols, {}, {}, 0, 0, {}, {}};
  result.training =
      encode_documents(text.training, text.training_ends, symbols, between, result.training_ends);
  result.validation =
      encode_documents(text.validation, text.validation_ends, symbols, between, result.validation_ends);
  const auto require = [&](const char* part, std::size_t tokens) {
    if (tokens <= static_cast<std::size_t>(context))
      throw tessera::option_error(tessera::message(
          "[text] the ", part, " part of ", text.source, " has ", tokens, " tokens, but --context ", context,
          " needs at least ", context + 1, "; choose a longer text or a smaller context"));
  };
  require("training", result.training.size());
  require("validation", result.validation.size());
  for (auto const& [part, ends] :
       {std::pair{"training", &result.training_ends}, {"validation", &result.validation_ends}})
    if (ends->size() < documents)
      throw tessera::option_error(
          tessera::message("[--next-sentence] the ", part, " part of ", text.source, " has ", ends->size(),
                           ends->size() == 1 ? " document" : " documents",
                           ", but the sentences that do not follow come from "
                           "another one; say --documents blank-lines, or name more files"));
  if (auto const* words = symbols.words()) {
    const auto unknown = std::count(result.training.begin(), result.training.end(), words->unknown());
    if (2 * unknown > std::ssize(result.training))
      throw tessera::option_error(tessera::message("[text] ", 100 * unknown / std::ssize(result.training),
                                                   " % of the tokens of ", text.source,
                                                   " are unknown to the vocabulary; learn one from the text "
                                                   "(no --vocabulary-file), or choose one of its "
                                                   "language"));
  }
  result.bytes_per_token =
      static_cast<double>(text.validation.size()) / static_cast<double>(result.validation.size());
  using tessera::content_hash;
  result.hash = content_hash(text.validation, content_hash(text.training) + text.training.size());
  return result;
}
/// A vocabulary for a text: its characters, bytes, or pieces that are learned from its training part, or read
/// from `file` unless that is empty.
inline vocabulary vocabulary_for(corpus const& text, text_level level, std::size_t size,
                                 std::string const& file) {
  using tessera::tokenizers::byte_pair;
  using tessera::tokenizers::wordpiece;
  if (level == text_level::wordpiece)
    return vocabulary(file.empty() ? wordpiece::trained(text.training, size) : wordpiece::read(file));
  if (level == text_level::byte_pair && file.ends_with(".json"))
    return vocabulary(tokenizer_file(tessera::io::read_json(file), file));
  if (level == text_level::byte_pair)
    return vocabulary(file.empty() ? byte_pair::trained(text.training, size) : byte_pair::read(file));
  return {level, text.training + text.validation};
}
/// With the characters or bytes of the text itself.
inline token_text tokenize(corpus const& text, text_level level, int context) {
  return tokenize(text, vocabulary(level, text.training + text.validation), context);
}

}  // namespace pretrain
