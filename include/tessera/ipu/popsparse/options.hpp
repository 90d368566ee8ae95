// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <string>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/json.hpp>
#include <tessera/io/json_parser.hpp>
#include <tessera/io/parse_number.hpp>
#include <tessera/ipu/target.hpp>

// popsparse's options, by their names there.

namespace tessera { inline namespace TESSERA_ISA { namespace ipu {

/// Names and values, as Poplar's OptionFlags: {{"nSplit", "2"}, …}.
using option_flags = std::map<std::string, std::string>;

namespace detail {

[[noreturn]] void refuse_option(char const* operation, std::string const& name, std::string const& value,
                                std::string const& wanted);
double number_option(char const* operation, std::string const& name, std::string const& value, double least);
/// A number of parts.
std::int64_t count_option(char const* operation, std::string const& name, std::string const& value);
bool bool_option(char const* operation, std::string const& name, std::string const& value);
precision precision_option(char const* operation, std::string const& name, std::string const& value);

}  // namespace detail

/// Of the static product, with popsparse's defaults.
struct static_options {
  double available_memory_proportion = 0.6;  // of a tile's memory, for temporaries
  std::int64_t bands = 0;                    // numBands: parts of k; 0: the planner's choice
  std::int64_t n_split = 0;                  // nSplit: parts of n; 0: the planner's choice
  bool enable_preprocessing = true;          // light rows and columns are put behind the others

  /// Throws option_error for a name that popsparse's static product does not have, and a value without
  /// meaning.
  static static_options from(option_flags const& flags);
};

/// Of the dynamic product, with popsparse's defaults.
struct dynamic_options {
  double available_memory_proportion = 0.6;
  double oversize = 0.3;  // metaInfoBucketOversizeProportion: room of a bucket above an even distribution
  precision partials = precision::single;
  bool gradient_of_activations = false;  // doGradAPass: plan for W-transposed dY too
  bool gradient_of_weights = false;      // doGradWPass: plan for dY X-transposed too
  bool optimise_for_speed = true;    // partitioner.optimiseForSpeed: overflow goes where buckets travel first
  bool force_bucket_spills = false;  // partitioner.forceBucketSpills: no block stays at home, for tests
  std::int64_t x = 0, y = 0, z = 0;  // planConstraints: parts of m, k and n; 0: the planner's choice

  static dynamic_options from(option_flags const& flags);

 private:
  static void require_default(std::string const& name, std::string const& value, bool is,
                              std::string const& why);
  /// {"partition": {"x": …, "y": …, "z": …}}, each if wanted.
  void constrain(std::string const& json);
};

#ifdef TESSERA_BODY

namespace detail {

TESSERA_COLD TESSERA_BODY void refuse_option(char const* operation, std::string const& name,
                                             std::string const& value, std::string const& wanted) {
  throw option_error(message("[", operation, "] ", name, " = ", value, ": ", wanted));
}

TESSERA_BODY double number_option(char const* operation, std::string const& name, std::string const& value,
                                  double least) {
  double number = 0;
  if (!io::is_number(value, number) || !(number >= least && number <= 1e15))
    refuse_option(operation, name, value, message("a number of at least ", least, " is meant"));
  return number;
}

TESSERA_BODY std::int64_t count_option(char const* operation, std::string const& name,
                                       std::string const& value) {
  const double number = number_option(operation, name, value, 0);
  if (!(number <= 1e9) || number != std::floor(number))
    refuse_option(operation, name, value, "a whole number of at most 1000000000 is meant");
  return std::int64_t(number);
}

TESSERA_BODY bool bool_option(char const* operation, std::string const& name, std::string const& value) {
  if (value == "true" || value == "1") return true;
  if (value != "false" && value != "0") refuse_option(operation, name, value, "true or false is meant");
  return false;
}

TESSERA_BODY precision precision_option(char const* operation, std::string const& name,
                                        std::string const& value) {
  if (value == "half") return precision::half;
  if (value != "float") refuse_option(operation, name, value, "half or float is meant");
  return precision::single;
}

}  // namespace detail

TESSERA_BODY static_options static_options::from(option_flags const& flags) {
  constexpr char const* operation = "ipu::static_options";
  static_options o;
  for (auto const& [name, value] : flags) {
    if (name == "availableMemoryProportion")
      o.available_memory_proportion = detail::number_option(operation, name, value, 0);
    else if (name == "numBands")
      o.bands = detail::count_option(operation, name, value);
    else if (name == "nSplit")
      o.n_split = detail::count_option(operation, name, value);
    else if (name == "enablePreprocessing")
      o.enable_preprocessing = detail::bool_option(operation, name, value);
    else if (name == "verboseLogging")
      detail::bool_option(operation, name, value);  // a plan always explains itself
    else
      throw option_error(message("[", operation, "] there is no option ", name,
                                 ": availableMemoryProportion, numBands, nSplit, enablePreprocessing and "
                                 "verboseLogging are"));
  }
  return o;
}

TESSERA_BODY dynamic_options dynamic_options::from(option_flags const& flags) {
  constexpr char const* operation = "ipu::dynamic_options";
  dynamic_options o;
  for (auto const& [name, value] : flags) {
    if (name == "availableMemoryProportion")
      o.available_memory_proportion = detail::number_option(operation, name, value, 0);
    else if (name == "metaInfoBucketOversizeProportion")
      o.oversize = detail::number_option(operation, name, value, 0);
    else if (name == "partialsType")
      o.partials = detail::precision_option(operation, name, value);
    else if (name == "sharedBuckets")
      require_default(name, value, true, "all passes use the same buckets");
    else if (name == "doGradAPass")
      o.gradient_of_activations = detail::bool_option(operation, name, value);
    else if (name == "doGradWPass")
      o.gradient_of_weights = detail::bool_option(operation, name, value);
    else if (name == "enableStructuredRearrangements")
      require_default(name, value, true, "activations are always rearranged by a codelet");
    else if (name == "partitioner.useActualWorkerSplitCosts")
      require_default(name, value, false, "workers share the blocks of their tile evenly");
    else if (name == "partitioner.optimiseForSpeed")
      o.optimise_for_speed = detail::bool_option(operation, name, value);
    else if (name == "partitioner.forceBucketSpills")
      o.force_bucket_spills = detail::bool_option(operation, name, value);
    else if (name == "planConstraints")
      o.constrain(value);
    else
      throw option_error(message(
          "[", operation, "] there is no option ", name,
          ": availableMemoryProportion, metaInfoBucketOversizeProportion, partialsType, sharedBuckets, "
          "doGradAPass, doGradWPass, planConstraints, enableStructuredRearrangements, "
          "partitioner.optimiseForSpeed, partitioner.forceBucketSpills and "
          "partitioner.useActualWorkerSplitCosts are"));
  }
  return o;
}

TESSERA_BODY void dynamic_options::require_default(std::string const& name, std::string const& value, bool is,
                                                   std::string const& why) {
  constexpr char const* operation = "ipu::dynamic_options";
  if (detail::bool_option(operation, name, value) != is)
    detail::refuse_option(operation, name, value,
                          message("only ", is ? "true" : "false", " is possible: ", why));
}

TESSERA_BODY void dynamic_options::constrain(std::string const& json) {
  const io::json all = io::parse_json(json, "planConstraints");
  auto const* const members = all.get_if<io::json::object>();
  if (!members)
    detail::refuse_option("ipu::dynamic_options", "planConstraints", json, "a JSON object is meant");
  for (auto const& [name, value] : *members) {
    auto const* const parts = name == "partition" ? value.get_if<io::json::object>() : nullptr;
    if (!parts)
      detail::refuse_option("ipu::dynamic_options", "planConstraints", json,
                            message("\"", name, "\" cannot be constrained, \"partition\" can, by an object"));
    for (auto const& [axis, count] : *parts) {
      auto const* const number = count.get_if<std::int64_t>();
      if (!number || *number < 1 || (axis != "x" && axis != "y" && axis != "z"))
        detail::refuse_option("ipu::dynamic_options", "planConstraints", json,
                              "x, y and z of a partition are whole numbers of at least 1");
      (axis == "x" ? x : axis == "y" ? y : z) = *number;
    }
  }
}

#endif

}}}  // namespace tessera::TESSERA_ISA::ipu
