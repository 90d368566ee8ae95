// SPDX-License-Identifier: BSD-3-Clause

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include <harness/bandwidth.hpp>
#include <harness/peak.hpp>
#include <harness/question.hpp>

#include <tessera/exec/available_threads.hpp>

// The questions, their sizes, and the goals for the answers.

namespace bench {
namespace {

constexpr int blocks[] = {16, 8, 4, 1};
constexpr std::array<std::int64_t, 3> small_product = {96, 80, 150};  // a last panel that is partly filled

/// 1024³ runs from the caches, the three layer shapes from memory.
const std::vector<std::array<std::int64_t, 3>> shapes = {
    {1024, 1024, 1024}, {3072, 768, 4096}, {768, 3072, 4096}, {768, 768, 4096}};
bool is_warm(workload const& what) { return what.n == 1024; }

/// Shares of the peak to reach, by block size; 0 for none.
using goals = std::map<int, double>;
double goal_of(goals const& all, int block) {
  const auto at = all.find(block);
  return at == all.end() ? 0 : at->second;
}

/// The block sizes of an element.
std::vector<int> blocks_of(std::string const& element) {
  std::vector<int> all(std::begin(blocks), std::end(blocks));
  if (element == "bfloat16" && multiplies_by_amx()) all.insert(all.begin(), 32);
  return all;
}

/// One group for each shape, with all block sizes of an element in it.
std::vector<std::vector<workload>> sparse_groups(std::vector<std::string> const& operations, int threads,
                                                 std::string const& element = "float") {
  std::vector<std::vector<workload>> groups;
  for (auto const& operation : operations)
    for (auto const& [m, k, n] : shapes) {
      auto& group = groups.emplace_back();
      for (const int block : blocks_of(element))
        group.push_back({operation, m, k, n, 0.1, block, threads, element});
    }
  return groups;
}

question forward(int threads) {
  auto groups = sparse_groups({"forward"}, threads);
  for (auto const& element : {"float", "bfloat16"}) {
    auto& group = groups.emplace_back();
    for (const int block : blocks)
      group.push_back({"feed-forward", 3072, 768, 4096, 0.1, block, threads, element});
  }
  return {"forward",
          "y = W x, one token per lane, and y = V gelu(W x) panel by panel",
          groups,
          small_product,
          [](workload const& what, std::string const&) {
            if (what.operation == "feed-forward")
              return what.element == "float" && what.block == 16 ? .86 : 0;
            return is_warm(what) ? goal_of({{16, .95}, {8, .95}, {4, .92}, {1, .53}}, what.block)
                                 : goal_of({{16, .88}, {8, .88}, {4, .85}, {1, .46}}, what.block);
          },
          {},
          is_ours};
}

question transposed(int threads) {
  return {"transposed",
          "dx = transposed(W) dy, with the same weights",
          sparse_groups({"transposed"}, threads),
          small_product,
          [](workload const& what, std::string const&) {
            return is_warm(what) ? goal_of({{16, .90}, {8, .90}, {4, .88}, {1, .45}}, what.block)
                                 : goal_of({{16, .84}, {8, .84}, {4, .82}, {1, .40}}, what.block);
          },
          {}};
}

question sampled(int threads) {
  return {"sampled",
          "g = dy transposed(x) at the blocks of W: whole, and the product alone",
          sparse_groups({"sampled"}, threads),
          small_product,
          [](workload const& what, std::string const& contestant) {
            if (is_warm(what) && contestant == "tessera product only")
              return goal_of({{16, .70}, {8, .58}, {4, .60}, {1, .25}}, what.block);
            if (!is_warm(what) && contestant == "tessera")
              return goal_of({{16, .80}, {8, .70}, {4, .70}, {1, .35}}, what.block);
            return 0.0;
          },
          {}};
}

question large(int threads) {
  std::vector<std::vector<workload>> groups;
  for (auto const& operation : {"forward", "transposed", "sampled"})
    for (const double stored : {1.0, .5, .1}) {
      auto& group = groups.emplace_back();
      for (const int block : blocks) group.push_back({operation, 4096, 4096, 1024, stored, block, threads});
    }
  question q{"large", "the products with weights beyond the L2 and the L3", groups, small_product, {}, {},
             is_ours};
  q.by_default = false;
  return q;
}

question dense(int threads) {
  std::vector<std::vector<workload>> groups;
  for (auto const& [m, k, n] : shapes) groups.push_back({{"dense", m, k, n, 1, 16, threads}});
  for (auto const& operation : {"transposed", "sampled"})
    groups.push_back({{operation, 1024, 1024, 1024, 1, 16, threads}});
  return {"dense",
          "the products with every block stored, by the same kernels",
          groups,
          small_product,
          [](workload const& what, std::string const& contestant) {
            return contestant == "tessera" && what.operation == "dense" ? .93 : 0;
          },
          [](entrant const& e, std::vector<entrant> const& group) -> std::vector<comparison> {
            for (entrant const& peer : group)
              if (peer.name == "oneDNN" && e.name != peer.name)
                return {{peer.name, peer.time_ns().median / e.time_ns().median,
                         e.name == "tessera" && e.what.operation == "dense" ? .97 : 0}};
            return {};
          },
          [](std::string const& contestant) { return is_ours(contestant) || contestant == "oneDNN"; }};
}

/// The products in a narrow element, their gradients in float: a share of the peak of the engine that
/// multiplies it, and from the caches beside the products in float.
///   beside_float   the goal for single elements, which are always widened
question in_narrow(char const* element, char const* about, int threads, double beside_float,
                   std::function<double(workload const&, std::string const&)> goal,
                   std::vector<std::string> const& operations = {"forward", "transposed", "sampled"}) {
  auto groups = sparse_groups(operations, threads, element);
  for (auto const& [m, k, n] : shapes) groups.push_back({{"dense", m, k, n, 1, 16, threads, element}});
  for (auto& group : groups) {
    std::vector<workload> in_float = group;
    std::erase_if(in_float, [](workload const& what) { return what.block == 32; });
    for (workload& what : in_float) what.element = "float";
    if (is_warm(group.front())) group.insert(group.end(), in_float.begin(), in_float.end());
  }
  return {element,
          about,
          groups,
          small_product,
          [=](workload const& what, std::string const& contestant) {
            return is_warm(what) && what.element == element ? goal(what, contestant) : 0;
          },
          [=](entrant const& e, std::vector<entrant> const& group) -> std::vector<comparison> {
            for (entrant const& other : group)
              if (e.what.element == element && other.what.element == "float" && other.name == e.name &&
                  other.what.block == e.what.block)
                return {{"float", other.time_ns().median / e.time_ns().median,
                         e.what.block == 1 ? beside_float : 0}};
            return {};
          },
          is_ours};
}

question in_bfloat16(int threads) {
  return in_narrow("bfloat16", "the products of bfloat16, beside those of float", threads, .95,
                   [](workload const& what, std::string const& contestant) -> double {
                     if (multiplies_by_amx()) {
                       if (contestant != "tessera") return 0;
                       return what.operation == "sampled"
                                  ? goal_of({{32, .30}, {16, .25}, {8, .15}, {4, .08}}, what.block)
                                  : goal_of({{32, .32}, {16, .29}, {8, .14}, {4, .07}}, what.block);
                     }
                     if (what.operation == "forward")
                       return goal_of({{16, .93}, {8, .92}, {4, .90}}, what.block);
                     if (what.operation == "transposed")
                       return goal_of({{16, .88}, {8, .88}, {4, .85}}, what.block);
                     return contestant == "tessera product only"
                                ? goal_of({{16, .70}, {8, .65}, {4, .65}}, what.block)
                                : 0;
                   });
}

question in_float16(int threads) {
  return in_narrow("float16", "the products of float16, which are those of float after widening", threads, 0,
                   [](workload const& what, std::string const&) -> double {
                     return what.operation == "forward" ? goal_of({{16, .80}, {8, .80}, {4, .80}}, what.block)
                                                        : 0;
                   });
}

question in_int8(int threads) {
  return in_narrow(
      "int8", "the products of int8 by int8 into float, against the peak of VNNI, which AMX may exceed",
      threads, 0,
      [](workload const& what, std::string const& contestant) -> double {
        return contestant == "tessera" ? goal_of({{16, .85}, {8, .80}, {4, .55}}, what.block) : 0;
      },
      {"forward", "transposed"});
}

/// Each workload with one thread and with several, each against the peak of as many threads; and some
/// of the smallest, where threads share most, by as many threads apart.
question scaling(int threads) {
  const int several = std::max(threads, std::min(2, exec::available_threads()));
  std::vector<std::vector<workload>> groups;
  if (several > 1) {
    auto with_one = sparse_groups({"forward", "transposed", "sampled"}, 1);
    for (auto const& [m, k, n] : shapes) with_one.push_back({{"dense", m, k, n, 1, 16, 1}});
    for (auto const& group : with_one) {
      auto& beside = groups.emplace_back();
      for (workload what : group) {
        beside.push_back(what);
        what.threads = several;
        beside.push_back(what);
        if (what.n > 1024 || what.operation == "transposed") continue;
        what.operation += " apart";
        beside.push_back(what);
      }
    }
  }
  return {"scaling",
          "several threads beside one, each as a share of the peak of that many threads",
          groups,
          small_product,
          {},
          [](entrant const& e, std::vector<entrant> const& group) -> std::vector<comparison> {
            for (entrant const& alone : group)
              if (e.what.threads > 1 && alone.what.threads == 1 && alone.what.block == e.what.block &&
                  e.what.operation.starts_with(alone.what.operation) && alone.name == e.name)
                return {{"1 thread", e.middle_share() / alone.middle_share(),
                         e.what.operation == alone.what.operation ? .93 : 0}};
            return {};
          },
          [](std::string const& contestant) {
            return contestant == "tessera" || contestant == "tessera product only";
          }};
}

/// Attention in 12 heads of m features over sequences of k tokens, also with biases of ALiBi; a causal one is
/// counted as half.
question attention(int threads) {
  std::vector<std::vector<workload>> groups;
  for (auto const& element : {"float", "bfloat16"})
    for (const auto& [m, k] :
         std::vector<std::pair<int, int>>{{64, 128}, {64, 512}, {64, 2048}, {32, 512}, {128, 512}}) {
      auto& group = groups.emplace_back();
      for (auto const& operation :
           {"attention", "alibi", "causal", "attention back", "alibi back", "causal back"})
        if (m == 64 || operation[0] == 'a') group.push_back({operation, m, k, 4096, 1, 64, threads, element});
    }
  return {"attention",
          "12 heads of m features, sequences of k tokens: forward, and backward with scores made again",
          groups,
          {8, 70, 140},
          [](workload const& what, std::string const&) -> double {
            if (what.element != "float" || what.m != 64) return 0;
            if (what.operation == "attention") return what.k == 128 ? .72 : what.k == 512 ? .78 : .83;
            return what.operation == "attention back" ? .70 : 0;
          },
          {}};
}

/// Statements that are limited by memory, beside a loop that moves the same bytes: arrays that are read and
/// arrays that are written, each once.
question memory(int threads) {
  std::vector<std::vector<workload>> groups;
  for (auto const& element : {"float", "bfloat16"}) {
    for (auto const& operation :
         {"residual", "gelu", "layer norm", "norm back", "bias gradient", "copy in", "copy out"})
      groups.push_back({{operation, 768, 1, 16384, 1, 16, threads, element}});
    groups.push_back({{"cross-entropy", 256, 1, 3 * 16384, 1, 16, threads, element}});
    groups.push_back({{"embedding", 768, 8192, 16384, 1, 16, threads, element}});
  }
  groups.push_back({{"AdamW", 4096, 4096, 1, 1, 16, threads}});
  return {"memory",
          "what is limited by memory (m features or classes, n tokens), beside the same bytes only moved",
          groups,
          {80, 48, 150},
          {},
          [](entrant const& e, std::vector<entrant> const& group) -> std::vector<comparison> {
            for (entrant const& other : group)
              if (is_ours(e.name) && other.name == "stream")
                return {{"stream", other.time_ns().median / e.time_ns().median, .85}};
            return {};
          },
          {},
          false};
}

/// Products of one token beside reading the weights and their index, and of few tokens by the time of a
/// token.
question few(int threads) {
  std::vector<std::vector<workload>> groups;
  for (auto const& operation : {"forward", "transposed"})
    for (const int block : blocks) {
      auto& group = groups.emplace_back();
      for (const std::int64_t tokens : {1, 16, 32, 64})
        group.push_back({operation, 3072, 3072, tokens, 0.1, block, threads});
    }
  question q{"few",
             "products of 1, 16, 32 and 64 tokens, with weights beyond the L2",
             groups,
             small_product,
             {},
             [](entrant const& e, std::vector<entrant> const& group) -> std::vector<comparison> {
               const double time = e.time_ns().median / double(e.what.n);
               if (e.what.n == 1) {
                 const double blocks_stored =
                     e.what.density * double(e.what.m * e.what.k) / (e.what.block * e.what.block);
                 const double bytes = blocks_stored * double(e.what.block * e.what.block * 4 + 4);
                 const double reading = bytes / read_gbytes_per_second(std::size_t(bytes));
                 return {{"reading W", reading * e.what.threads / time, e.what.block == 1 ? .45 : .65}};
               }
               for (entrant const& other : group)
                 if (other.what.n == 64 && e.what.n < 64)
                   return {{"64 tokens", other.time_ns().median / 64 / time, e.what.n == 16 ? .75 : .90}};
               return {};
             },
             is_ours};
  q.by_default = false;
  return q;
}

/// Products of one to sixteen tokens whose weights come from memory, beside reading as many bytes, and beside
/// the longer of that and the multiply-adds at their peak, which limit more tokens.
question weights(int threads) {
  std::vector<std::vector<workload>> groups;
  for (auto const& element : {"float", "double", "bfloat16", "float16", "int8", "float8_e4m3"})
    for (const int block : blocks)
      for (const std::int64_t tokens : {1, 2, 4, 8, 16})
        groups.push_back({{"weights", 4096, 4096, tokens, 0.5, block, threads, element}});
  question q{
      "weights",
      "products of 1 to 16 tokens with weights from memory, beside reading as many bytes",
      groups,
      small_product,
      {},
      [](entrant const& e, std::vector<entrant> const& group) -> std::vector<comparison> {
        for (entrant const& other : group)
          if (is_ours(e.name) && other.name == "stream") {
            const double reading = other.time_ns().median, time = e.time_ns().median,
                         multiplying = e.work.useful_flops / e.peak().median;
            return {{"stream", reading / time, 0},
                    {"stream or peak", std::max(reading, multiplying) / time, e.what.block == 1 ? .60 : .85}};
          }
        return {};
      },
      {},
      false};
  q.by_default = false;
  return q;
}

/// A product of rows of tokens, beside that of panels.
question rows(int threads) {
  std::vector<std::vector<workload>> groups;
  for (auto const& [m, k, n] : shapes)
    if (m != k)
      for (const int block : blocks)
        groups.push_back(
            {{"forward", m, k, n, 0.1, block, threads}, {"forward in rows", m, k, n, 0.1, block, threads}});
  question q{"rows",
             "y = W x with x and y as rows of tokens, beside panels",
             groups,
             small_product,
             {},
             [](entrant const& e, std::vector<entrant> const& group) -> std::vector<comparison> {
               for (entrant const& other : group)
                 if (e.what.operation != other.what.operation && e.what.operation == "forward in rows")
                   return {{"panels", other.time_ns().median / e.time_ns().median,
                            e.what.m < e.what.k ? 0
                            : e.what.block == 4 ? 1 / 1.25
                                                : 1 / 1.15}};
               return {};
             },
             is_ours};
  q.by_default = false;
  return q;
}

/// 2:4 sparsity beside the dense product, and beside half of the weights in blocks.
question nm(int threads) {
  std::vector<std::vector<workload>> groups;
  for (auto const& element : {"float", "bfloat16"})
    for (auto const& [m, k, n] : shapes)
      for (const bool forward : {true, false}) {
        auto& group = groups.emplace_back();
        const std::string in_blocks = forward ? "forward" : "transposed";
        group.push_back({forward ? "dense" : in_blocks, m, k, n, 1, 16, threads, element});
        group.push_back({forward ? "2:4" : "2:4 back", m, k, n, .5, 1, threads, element});
        for (const int block : {4, 1}) group.push_back({in_blocks, m, k, n, .5, block, threads, element});
      }
  question q{"nm",
             "products with 2:4 sparsity, and with half of the blocks, beside the dense ones",
             groups,
             small_product,
             {},
             [](entrant const& e, std::vector<entrant> const& group) -> std::vector<comparison> {
               for (entrant const& dense : group)
                 if (dense.what.density == 1 && e.what.density < 1)
                   return {{"dense", dense.time_ns().median / e.time_ns().median, 0}};
               return {};
             },
             is_ours};
  q.by_default = false;
  return q;
}

/// Changing a pattern, beside one product with the same weights.
question pattern_change() {
  std::vector<workload> group;
  for (const int block : blocks)
    for (auto const& operation : {"forward", "pattern"})
      group.push_back({operation, 1024, 1024, 1024, 0.1, block, 1});
  return {
      "pattern",
      "an update of a pattern, everything that moves with it included, beside a forward product",
      {group},
      small_product,
      {},
      [](entrant const& e, std::vector<entrant> const& all) -> std::vector<comparison> {
        // Within 5, 10, 40 and 250 % of a product.
        static const goals times = {{16, 1 / .05}, {8, 1 / .1}, {4, 1 / .4}, {1, 1 / 2.5}};
        for (entrant const& product : all)
          if (e.what.operation == "pattern" && product.what.operation == "forward" &&
              product.what.block == e.what.block)
            return {{"forward", product.time_ns().median / e.time_ns().median, goal_of(times, e.what.block)}};
        return {};
      },
      [](std::string const& contestant) { return contestant == "tessera"; }};
}

/// A model in all block sizes, and dense.
std::vector<workload> step_group(std::string const& operation, std::array<std::int64_t, 3> const& shape,
                                 int threads, std::string const& element = "float") {
  const auto [m, k, n] = shape;
  std::vector<workload> group{{operation, m, k, n, 1, 16, threads, element}};
  for (const int block : blocks_of(element))
    group.push_back({operation, m, k, n, 0.1, block, threads, element});
  return group;
}

constexpr std::array<std::int64_t, 3> gpt_size = {512, 8, 4096}, bert_size = {768, 1, 4096},
                                      bert_model_size = {768, 12, 4096}, mlp_size = {1024, 512, 60000};

/// Our models beside PyTorch's dense one and our own dense one.
question step(int threads) {
  return {"step",
          "forward, backward and optimizer of whole models (m hidden, k layers, n tokens; "
          "benchmarks/step/step.hpp)",
          {step_group("gpt", gpt_size, threads), step_group("bert", bert_size, threads),
           step_group("bert", bert_size, threads, "bfloat16"),
           step_group("bert model", bert_model_size, threads), step_group("mlp", mlp_size, threads)},
          {64, 2, 256},
          {},
          [](entrant const& e, std::vector<entrant> const& group) {
            // Times as fast as PyTorch, by block size; 0 is dense.
            static const bool by_amx = multiplies_by_amx();
            static const std::map<std::string, goals> all = {
                {"gpt float", {{16, 6}, {4, 5.5}, {1, 3}, {0, 1.25}}},
                {"bert float", {{16, 8}, {4, 7.5}, {1, 3.5}, {0, 1.25}}},
                {"bert bfloat16",
                 by_amx ? goals{{32, 6}, {16, 6}, {8, 4.5}, {0, .9}} : goals{{16, 8}, {4, 7}, {0, 1.2}}},
                {"bert model float", {{16, 10}, {4, 10}, {0, 1.2}}},
                {"mlp float", {{16, 6}, {4, 6}, {1, 3}, {0, 1.2}}}};
            std::vector<comparison> beside;
            if (e.name != "tessera") return beside;
            const bool dense = e.what.density == 1;
            for (entrant const& other : group) {
              const double times = other.time_ns().median / e.time_ns().median;
              if (other.name == "PyTorch")
                beside.push_back(
                    {"PyTorch", times,
                     goal_of(all.at(e.what.operation + " " + e.what.element), dense ? 0 : e.what.block)});
              else if (!dense && other.what.density == 1)
                beside.push_back({"own dense", times, 0});
            }
            return beside;
          }};
}

/// What the steps of our models spend their time on.
question parts(int threads) {
  return {"parts",
          "the parts of our steps, each timed apart",
          {step_group("gpt parts", gpt_size, threads), step_group("bert parts", bert_size, threads),
           step_group("bert parts", bert_size, threads, "bfloat16"),
           step_group("mlp parts", {1024, 512, 6000}, threads)},
          {64, 2, 256},
          {},
          {}};
}

}  // namespace

std::vector<question> questions(int threads) {
  std::vector<question> all = {forward(threads),
                               transposed(threads),
                               sampled(threads),
                               dense(threads),
                               large(threads),
                               in_bfloat16(threads),
                               in_float16(threads),
                               in_int8(threads),
                               attention(threads),
                               memory(threads),
                               few(threads),
                               weights(threads),
                               rows(threads),
                               nm(threads),
                               scaling(threads),
                               step(threads),
                               parts(threads),
                               pattern_change(),
                               decoding_question(threads)};
  std::ranges::move(peer_questions(threads), std::back_inserter(all));
  return all;
}

}  // namespace bench
