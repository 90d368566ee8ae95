// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>

#include <common/guarded_main.hpp>
#include <common/options_help.hpp>
#include <doctest/doctest.h>
#include <pretrain/new_settings.hpp>
#include <pretrain/reader_settings.hpp>
#include <pretrain/run_folder.hpp>
#include <pretrain/run_record.hpp>
#include <pretrain/settings.hpp>

#include <tessera/nn/gpt.hpp>

#include "../io/scratch_folder.hpp"

namespace pretrain_options_test {

using namespace pretrain;

std::string refusal_of(string_list const& arguments) {
  return error_of<tessera::option_error>([&] { check(new_settings(arguments), 2); });
}

TEST_CASE("options: both ways of writing an option mean the same") {
  const settings s = new_settings({"--layers", "3", "--density=0.25", "--static", "--time", "1h2m3s",
                                   "--lr=3e-4", "--block=8", "--level", "byte", "--name=a=b"});
  CHECK(s.layers == 3);
  CHECK(s.density == 0.25);
  CHECK(s.static_pattern);
  CHECK(s.time == seconds(3723));
  CHECK(s.lr == 3e-4);
  CHECK(s.block == 8);
  CHECK(s.level == "byte");
  CHECK(s.name == "a=b");
  CHECK(!new_settings({"--static=false"}).static_pattern);
  CHECK(new_settings({"-h"}).help);
}

TEST_CASE("options: of one option given twice the last counts and a list goes on") {
  CHECK(new_settings({"--layers=3", "--layers=5"}).layers == 5);
  CHECK(new_settings({"--text", "a", "b", "--layers=2", "--text=c"}).text == string_list{"a", "b", "c"});
}

TEST_CASE("options: times are seconds or have units") {
  CHECK(new_settings({"--time=90"}).time == seconds(90));
  CHECK(new_settings({"--time=1.5"}).time == seconds(1.5));
  CHECK(new_settings({"--time=180s"}).time == seconds(180));
  CHECK(new_settings({"--time=3m"}).time == seconds(180));
  for (const char* wrong :
       {"3x", "m", "3m2", "0", "0s", "-1m", "1h-30m", "1e25", "1e400h5s", "", "inf", "3 m"})
    CHECK(refusal_of({std::string("--time=") + wrong}) ==
          std::string("[--time] '") + wrong + "' is not a time, such as 90s, 3m or 1h30m, in (0, 1e9]");
}

TEST_CASE("options: an unknown name is refused with the nearest one") {
  CHECK(refusal_of({"--densty=0.5"}) == "[--densty] there is no such option; did you mean --density?");
  CHECK(refusal_of({"--prunefraction", "1"}) ==
        "[--prunefraction] there is no such option; did you mean --prune-fraction?");
  CHECK(refusal_of({"--quantum"}) == "[--quantum] there is no such option; --help lists all");
  CHECK(refusal_of({"--out", std::string("a\0b", 3)}) == "[--out] has a zero byte, where it would end");
  CHECK(refusal_of({"--" + std::string(10'000, 'x')}).size() < 200);
  CHECK(refusal_of({std::string(10'000, 'x')}).size() < 200);
  CHECK(refusal_of({"--preset", std::string(10'000, 'x')}).size() < 300);
  CHECK(refusal_of({"--"}) == "[--] there is no such option; --help lists all");
  CHECK(refusal_of({"corpus.txt"}) == "[corpus.txt] options begin with --; --help lists all");
}

TEST_CASE("options: a value outside its range is refused with the range") {
  CHECK(refusal_of({"--density=0"}) == "[--density] '0' is not a number in (0, 1]");
  CHECK(refusal_of({"--density=1.01"}) == "[--density] '1.01' is not a number in (0, 1]");
  CHECK(refusal_of({"--density=nan"}) == "[--density] 'nan' is not a number in (0, 1]");
  CHECK(refusal_of({"--density=1"}) == "");
  CHECK(refusal_of({"--density=1/16"}) == "");
  for (std::string const none : {"1/0", "1/", "/2", "1/2/3", "1 /2", "1/-2", "2/1"})
    CHECK(refusal_of({"--density=" + none}) == "[--density] '" + none + "' is not a number in (0, 1]");
  CHECK(refusal_of({"--lr=inf"}) == "[--lr] 'inf' is not a number in (0, inf)");
  CHECK(refusal_of({"--layers=0"}) == "[--layers] '0' is not a whole number in [1, 1000]");
  CHECK(refusal_of({"--layers=2.5"}) == "[--layers] '2.5' is not a whole number in [1, 1000]");
  CHECK(refusal_of({"--steps=3000000000"}) == "[--steps] '3000000000' is not a whole number in [0, 2e9]");
  CHECK(refusal_of({"--block=5"}) == "[--block] '5' is not one of 1|4|8|16");
  CHECK(refusal_of({"--block=1|4"}) == "[--block] '1|4' is not one of 1|4|8|16");
  CHECK(refusal_of({"--level=word"}) == "[--level] 'word' is not one of char|byte|wordpiece|bpe");
  CHECK(refusal_of({"--static=maybe"}) == "[--static] 'maybe' is not true or false");
  CHECK(refusal_of({"--layers"}) == "[--layers] needs a value: [1, 1000]");
  CHECK(refusal_of({"--text", "--quiet"}) == "[--text] needs a value: FILE");
}

TEST_CASE("options: sizes that do not go together are refused with sizes that do") {
  CHECK(refusal_of({"--hidden=250", "--heads=4"}) ==
        "[--heads] 4 is no divisor of --hidden 250; 2 and 5 are");
  CHECK(refusal_of({"--hidden=100", "--heads=500"}) ==
        "[--heads] 500 heads for 100 features; at most 100 are possible");
  CHECK(refusal_of({"--hidden=200", "--heads=5"}) ==
        "[--hidden] 200 is not a multiple of blocks of 16; with 5 heads 160 and 240 are");
  CHECK(refusal_of({"--hidden=10", "--heads=5"}) ==
        "[--hidden] 10 is not a multiple of blocks of 16; with 5 heads 80 is");
  CHECK(refusal_of({"--hidden=252", "--block=4"}) == "");
  CHECK(
      refusal_of({"--hidden=128", "--heads=2", "--density=0.001"}) ==
      "[--density] 0.001 leaves a matrix of 128 x 128 features, of 64 blocks, none; 0.0157 is the least that "
      "leaves one");
  CHECK(refusal_of({"--hidden=128", "--heads=2", "--density=0.0157"}) == "");
  CHECK(refusal_of({"--hidden=128", "--heads=2", "--density=0.001", "--only=dense"}) == "");
  CHECK(refusal_of({"--hidden=252", "--only=dense"}) == "");
  CHECK(refusal_of({"--threads=3"}) ==
        "[--threads] 3 is more than the 2 that this process may use; 0 takes all of them");
  CHECK(refusal_of({"--batch=65536", "--context=1000000"}) ==
        "[--batch] 65536 sequences of 1000000 tokens are too many for a step; at most 2147 are possible");
  CHECK(refusal_of({"--steps=5", "--time=3m"}) ==
        "[--time] and --steps both say when to end; give one of them");
  CHECK(refusal_of({"--config=a", "--resume=b"}) ==
        "[--config] has no meaning with --resume, which goes on with the stored settings; leave it out");
}

TEST_CASE("options: a policy is refused where patterns do not change") {
  for (const char* policy : {"magnitude", "set", "rigl", "itop", "snfs", "deep-r", "gradual", "granet"}) {
    const std::string said = std::string("--policy=") + policy;
    CHECK(new_settings({said}).policy == policy);
    CHECK(refusal_of({said}) == "");
    CHECK(refusal_of({said, "--only=dense"}) ==
          "[--policy] has no meaning with --only dense, which trains no sparse model; leave one of them out");
    CHECK(refusal_of({said, "--density=1"}) ==
          "[--policy] has no meaning with --density 1, which leaves no block to grow; leave one of them out");
    CHECK(refusal_of({said, "--static"}) ==
          "[--policy] has no meaning with --static, which keeps the first pattern; leave one of them out");
    CHECK(refusal_of({said, "--updates=0"}) ==
          "[--policy] has no meaning with --updates 0, which keeps the first pattern; leave one of them out");
  }
  for (const char* option :
       {"newborn=mean", "newborn-warmup=3", "newborn-values=0.5", "grace=2", "prune-score=age"}) {
    const std::string said = std::string("--") + option, name = said.substr(0, said.find('='));
    CHECK(refusal_of({said}) == "");
    CHECK(refusal_of({said, "--static"}) ==
          "[" + name +
              "] has no meaning with --static, which keeps the first pattern; leave one of them out");
    CHECK(refusal_of({said, "--policy=gradual"}) ==
          "[" + name + "] has no meaning with --policy gradual; leave it out");
  }
  CHECK(refusal_of({"--newborn=mean", "--optimizer=sgd"}) ==
        "[--newborn] has no meaning with --optimizer sgd, which does not divide by a second moment; leave it "
        "out");
  for (const char* option : {"prune-fraction=0.2", "prune-decay=linear", "block-norm=l1"}) {
    const std::string said = std::string("--") + option, name = said.substr(2, said.find('=') - 2);
    CHECK(refusal_of({said}) == "");
    CHECK(refusal_of({said, "--updates=0"}) ==
          "[--" + name +
              "] has no meaning with --updates 0, which keeps the first pattern; leave one of them out");
  }
  CHECK(refusal_of({"--momentum=0.5"}) ==
        "[--momentum] has no meaning with --optimizer adamw; say --optimizer sgd");
  CHECK(refusal_of({"--momentum=0.5", "--optimizer=sgd"}) == "");
  CHECK(refusal_of({"--momentum=0.5", "--optimizer=lars"}) == "");
  CHECK(refusal_of({"--trust-coefficient=0.01", "--optimizer=sgd"}) ==
        "[--trust-coefficient] has no meaning with --optimizer sgd; say --optimizer lars");
  CHECK(refusal_of({"--bias-correction=off", "--optimizer=lion"}) ==
        "[--bias-correction] has no meaning with --optimizer lion; say --optimizer lamb");
  CHECK(refusal_of({"--bias-correction=off", "--optimizer=lamb"}) == "");
  CHECK(
      refusal_of({"--newborn=mean", "--optimizer=lamb"}) ==
      "[--newborn] has no meaning with --optimizer lamb, whose new blocks begin with the mean; leave it out");
  CHECK(refusal_of({"--grace=80"}) ==
        "[--grace] 80 updates of the pattern outlast the run, which has 80; say less");
  CHECK(refusal_of({"--grace=2", "--policy=deep-r"}) ==
        "[--grace] has no meaning with --policy deep-r; leave it out");
  CHECK(new_settings({"--newborn=smet"}).newborn_warmup == 100);
  CHECK(new_settings({"--newborn=smet", "--newborn-warmup=7"}).newborn_warmup == 7);
  CHECK(new_settings({"--newborn=age"}).newborn_warmup == 0);
  // New blocks have a hundred steps to grow, unless updates are asked for.
  const auto interval = [](string_list const& said, std::int64_t steps) {
    return std::get<train::evolving_pattern>(policy_of(new_settings(said), steps).chosen).interval;
  };
  CHECK(interval({}, 1000) == 100);
  CHECK(interval({}, 81000) == 1000);
  CHECK(interval({"--updates=9"}, 100) == 10);
  CHECK(interval({"--updates=9", "--period=20"}, 100) == 20);
  CHECK(
      std::get<train::gradual_pruning>(policy_of(new_settings({"--policy=gradual"}), 810).chosen).interval ==
      10);
  CHECK(refusal_of({"--frames=10", "--only=dense"}) ==
        "[--frames] has no meaning with --only dense, which trains no sparse model; leave one of them out");
  CHECK(refusal_of({"--policy=set", "--block-norm=l2"}) ==
        "[--block-norm] has no meaning with --policy set; leave it out");
  CHECK(refusal_of({"--policy=gradual", "--prune-fraction=0.2"}) ==
        "[--prune-fraction] has no meaning with --policy gradual; leave it out");
  CHECK(new_settings({"--policy=gradual"}).sparse_lr == 1e-3);  // it begins dense
  const settings given = new_settings({"--block-norm=max", "--prune-decay=linear", "--updates=9"});
  const auto chosen = std::get<train::evolving_pattern>(policy_of(given, 100).chosen);
  CHECK(chosen.norm == tessera::block_norm::max);
  CHECK(chosen.falls == train::fraction_decay::linear);
  CHECK(chosen.interval == 10);
  CHECK(refusal_of({"--policy=random"}) ==
        "[--policy] 'random' is not one of magnitude|set|rigl|itop|snfs|deep-r|gradual|granet");
  for (const char* policy :
       {"magnitude", "set", "rigl", "snfs", "deep-r"})  // they replace all that are absent
    CHECK(refusal_of({std::string("--policy=") + policy, "--density=0.8"}) == "");
}

TEST_CASE("options: a model whose density falls begins with more blocks, and is told so where it matters") {
  const settings s = new_settings({"--policy=granet", "--density=0.1", "--prune-fraction=0.4"});
  const auto by = std::get<train::granet>(policy_of(s, 1000).chosen);
  CHECK(by.interval == 100);
  CHECK(by.end == 500);
  CHECK(by.steps == 1000);
  CHECK(by.initial == 0.5);
  CHECK(by.density == 0.1);
  CHECK(by.fraction == 0.4);
  CHECK_NOTHROW(by.check());
  CHECK_NOTHROW(policy_of(s, 1).check());  // as steps are timed
  const variant sparse{"sparse", 16, 0.1, 1}, dense{"dense", 16, 1, 1};
  CHECK(first_description_of(s, sparse, 9).shape.density == 0.5);
  CHECK(first_description_of(s, dense, 9).shape.density == 1);
  CHECK(description_of(s, sparse, 9).shape.density == 0.1);
  CHECK(std::abs(mean_density(s) - (0.1 + 0.4 * 0.5 / 4)) < 1e-15);
  CHECK(s.sparse_lr == train::suggested_rate(s.lr, 0.5));
  CHECK(new_settings({"--policy=granet", "--initial-density=1"}).sparse_lr == 1e-3);
  CHECK(std::abs(mean_density(new_settings({"--policy=gradual"})) - (0.1 + 0.9 * 0.75 / 4)) < 1e-15);
  CHECK(mean_density(new_settings({"--policy=rigl"})) == 0.1);
  CHECK(refusal_of({"--policy=granet", "--initial-density=0.05"}) ==
        "[--initial-density] 0.05 is less than --density 0.1, to which it falls; say more");
  CHECK(refusal_of({"--policy=rigl", "--initial-density=0.5"}) ==
        "[--initial-density] has no meaning with --policy rigl; say --policy granet");
  CHECK(refusal_of({"--initial-density=0.5", "--only=dense"}) ==
        "[--initial-density] has no meaning with --only dense, which trains no sparse model; leave one of "
        "them out");
  CHECK(refusal_of({"--policy=granet", "--densities=erdos-renyi"}) ==
        "[--densities] has no meaning with --policy granet; leave it out");
  CHECK(refusal_of({"--policy=granet", "--initial-pattern=snip"}) ==
        "[--initial-pattern] snip has no meaning with --policy granet, which begins with more blocks");
}

TEST_CASE("options: a parameterisation scales by the base, and is refused where its rates are unknown") {
  const settings s = new_settings({"--parameterisation=supar", "--hidden=512", "--heads=8", "--density=1/8"});
  CHECK(parameterisation_of(s) == train::parameterisation::sparse_maximal_update);
  CHECK(s.sparse_lr == s.lr);
  const variant sparse{"sparse", 16, 0.125, 1}, dense{"dense", 16, 1, 1};
  CHECK(model_scale_of(s, sparse).width == 2);
  CHECK(model_scale_of(s, sparse).density == 0.125);
  CHECK(model_scale_of(s, dense).density == 1);
  CHECK(model_scale_of(new_settings({"--parameterisation=supar", "--policy=granet"}), sparse).density == 0.5);
  CHECK(new_settings({"--parameterisation=mup"}).sparse_lr == train::suggested_rate(1e-3, 0.1));
  CHECK(model_scale_of(new_settings({"--parameterisation=mup", "--base-hidden=96"}), dense).width == 4);
  CHECK(parameterisation_of(new_settings({})) == train::parameterisation::standard);
  CHECK(refusal_of({"--base-hidden=64"}) ==
        "[--base-hidden] has no meaning with --parameterisation standard; say --parameterisation supar");
  CHECK(refusal_of({"--parameterisation=mup", "--model=bert"}) ==
        "[--parameterisation] mup has no meaning with --model bert; say --model gpt");
  CHECK(refusal_of({"--parameterisation=mup", "--optimizer=sgd"}) ==
        "[--parameterisation] mup has no meaning with --optimizer sgd: its factors are for adamw and "
        "lion");
  CHECK(refusal_of({"--parameterisation=mup", "--optimizer=lion"}) == "");
  CHECK(refusal_of({"--parameterisation=supar", "--densities=erdos-renyi"}) ==
        "[--parameterisation] supar has no meaning with --densities, by which matrices differ");
}

TEST_CASE("options: an initial pattern is refused where it has no meaning") {
  const std::string said = "--initial-pattern=snip";
  CHECK(refusal_of({said}) == "");
  for (const char* dense : {"--only=dense", "--density=1"})
    CHECK(refusal_of({said, dense}) == "[--initial-pattern] snip has no meaning with a dense model");
  CHECK(refusal_of({said, "--policy=gradual"}) ==
        "[--initial-pattern] snip has no meaning with --policy gradual, which begins dense");
  CHECK(refusal_of({said, "--densities=erdos-renyi"}) ==
        "[--initial-pattern] snip has no meaning with --densities, which is of random patterns");
  CHECK(refusal_of({said, "--precision=float16"}) ==
        "[--initial-pattern] snip has no meaning with float16; say bfloat16");
  CHECK(refusal_of({"--initial-pattern=grasp", "--precision=bfloat16"}) ==
        "[--initial-pattern] grasp has no meaning with 16-bit weights; say snip");
  for (const char* precision : {"--precision=float8", "--precision=int8"})
    CHECK(refusal_of({"--initial-pattern=grasp", precision}) ==
          "[--initial-pattern] grasp has no meaning with 8-bit products; say snip");
  CHECK(describe(new_settings({said, "--static"})) == "char-4x384-both-16x16-0.1-snip-static");
  CHECK(first_description_of(new_settings({said}), {"sparse", 16, 0.1, 1}, 9).shape.density == 1);
}

TEST_CASE("options: norms, residual connections and first values are refused where they have no meaning") {
  const auto norm = [](string_list const& said) { return new_settings(said).norm; };
  CHECK(norm({}) == "pre");
  CHECK(norm({"--model=bert"}) == "post");
  for (const char* without : {"--residual=rezero", "--residual=skipinit", "--init=fixup", "--init=t-fixup"}) {
    CHECK(norm({without}) == "none");
    CHECK(refusal_of({without}) == "");
    CHECK(refusal_of({without, "--model=bert"}) == "");
  }
  for (const char* with : {"--residual=layerscale", "--init=xavier"}) CHECK(norm({with}) == "pre");
  CHECK(refusal_of({"--residual=rezero", "--norm=pre"}) == "");
  CHECK(refusal_of({"--norm=post"}) ==
        "[--norm] post has no meaning with --model gpt, whose layers have pre-norm or none");
  CHECK(refusal_of({"--norm=pre", "--model=bert"}) ==
        "[--norm] pre has no meaning with --model bert, whose layers have post-norm or none");
  CHECK(refusal_of({"--init=t-fixup", "--norm=pre"}) ==
        "[--norm] pre has no meaning with --init t-fixup, which is for models without norms; say none");
  CHECK(
      refusal_of({"--init=fixup", "--residual=rezero"}) ==
      "[--residual] rezero has no meaning with --init fixup, which has numbers of its own; leave one of them "
      "out");
  CHECK(refusal_of({"--residual=layerscale", "--model=bert"}) ==
        "[--residual] layerscale has no meaning with post-norm layers, which would normalise the sum; say "
        "--norm none");
  CHECK(refusal_of({"--residual=layerscale", "--model=bert", "--norm=none"}) == "");
  for (const char* said : {"--norm=none", "--residual=rezero", "--init=xavier"}) {
    const std::string name = std::string(said).substr(0, std::string(said).find('='));
    CHECK(refusal_of({said, "--model=rnn"}) == "[" + name + "] has no meaning with --model rnn");
  }
  CHECK(refusal_of({"--model=rnn"}) == "");
  CHECK(
      refusal_of({"--init=fixup", "--initial-pattern=magnitude"}) ==
      "[--initial-pattern] magnitude has no meaning with --init fixup, where the last matrix of each branch "
      "is zero");
  CHECK(
      refusal_of({"--residual=rezero", "--initial-pattern=snip"}) ==
      "[--initial-pattern] snip has no meaning with --residual, where at first no branch has a gradient; say "
      "magnitude");

  const auto shape = [](string_list const& said) {
    return description_of(new_settings(said), {"sparse", 16, 0.1, 1}, 9).shape;
  };
  CHECK(shape({"--init=t-fixup"}).start == nn::initial_values::t_fixup);
  CHECK(shape({"--init=t-fixup"}).norms == nn::norm_layers::absent);
  CHECK(shape({"--residual=layerscale"}).residual == nn::residual_form::layer_scale);
  // A run of an earlier version had the norms of its model.
  const scratch_folder folder;
  put(folder / "settings.json", R"({"model": "bert", "level": "wordpiece"})");
  const auto file = tessera::io::read_json(folder / "settings.json");
  CHECK(settings_of_run(file, "settings.json").norm == "post");
}

TEST_CASE("options: layers that are used several times, and a factorised embedding") {
  const string_list albert{"--layers=1", "--repeats=12", "--embedding=128", "--model=bert"};
  const settings s = new_settings(albert);
  const auto shape = description_of(s, {"sparse", 16, 0.1, 1}, 9).shape;
  CHECK(shape.depth() == 12);
  CHECK(shape.embedding_features() == 128);
  CHECK(describe(s) == "bert-wordpiece-1x384-x12-e128-both-16x16-0.1");
  CHECK(refusal_of({"--layers=1", "--repeats=12", "--recompute=4"}) == "");
  CHECK(refusal_of({"--layers=1", "--repeats=3", "--recompute=4"}) ==
        "[--recompute] 4 segments of 3 layers; 0 … 3 are possible");
  CHECK(refusal_of({"--repeats=2", "--model=rnn"}) == "[--repeats] has no meaning with --model rnn");
  CHECK(refusal_of({"--embedding=8", "--model=rnn"}) == "[--embedding] has no meaning with --model rnn");
  CHECK(refusal_of({"--embedding=8", "--parameterisation=mup"}) ==
        "[--parameterisation] mup has no meaning with --embedding, of whose projections it says nothing");
  CHECK(refusal_of({"--plan=1e15", "--repeats=2"}) ==
        "[--plan] has no meaning with --repeats, by which a parameter has more than one product a token");
  CHECK(refusal_of({"--repeats=0"}) != "");
  CHECK(refusal_of({"--embedding=-1"}) != "");
}

TEST_CASE("options: a run is called after its policy unless that is the default") {
  CHECK(describe(new_settings({})) == "char-4x384-both-16x16-0.1");
  CHECK(describe(new_settings({"--policy=magnitude"})) == "char-4x384-both-16x16-0.1");
  CHECK(describe(new_settings({"--policy=rigl"})) == "char-4x384-both-16x16-0.1-rigl");
  CHECK(describe(new_settings({"--static"})) == "char-4x384-both-16x16-0.1-static");
  CHECK(describe(new_settings({"--only=dense"})) == "char-4x384-dense");
  CHECK(describe(new_settings({"--precision=int8"})) == "char-4x384-int8-both-16x16-0.1");
}

TEST_CASE("options: learning rates follow the batch from the one for which they are good") {
  const auto rates = [](string_list const& more) {
    string_list all{"--batch=32", "--lr=1e-3", "--sparse-lr=4e-3"};
    all.insert(all.end(), more.begin(), more.end());
    const std::vector<variant> both = variants_of(new_settings(all));
    return std::vector<double>{both[0].lr, both[1].lr};
  };
  const auto near = [](std::vector<double> const& a, double dense, double sparse) {
    return a[0] == doctest::Approx(dense) && a[1] == doctest::Approx(sparse);
  };
  CHECK(near(rates({}), 1e-3, 4e-3));
  CHECK(near(rates({"--reference-batch=8"}), 2e-3, 8e-3));
  CHECK(near(rates({"--reference-batch=8", "--lr-scaling=linear"}), 4e-3, 16e-3));
  CHECK(refusal_of({"--lr-scaling=linear"}) ==
        "[--lr-scaling] has no meaning with --reference-batch 0; say --reference-batch, for which --lr is "
        "good");
  CHECK(refusal_of({"--warmup-tokens=1000", "--warmup=0.1"}) ==
        "[--warmup] has no meaning with --warmup-tokens; leave one of them out");
}

TEST_CASE("options: a run cannot go on and begin from another at once") {
  CHECK(refusal_of({"--resume=runs/a", "--from=runs/b"}) ==
        "[--from] has no meaning with --resume, which goes on with the run's own models; leave one of them "
        "out");
}

TEST_CASE("options: where one model is pruned first, it is trained first") {
  const auto first = [](string_list const& arguments) {
    return in_order_of_training(new_settings(arguments)).front().name;
  };
  CHECK(first({}) == "dense");
  CHECK(first({"--initial-pattern=snip"}) == "sparse");
}

TEST_CASE("options: checkpoints that a run has need no more room, and say how large others are") {
  const scratch_folder here;
  CHECK(bytes_to_come(here / "none", 3, 100).kept == 300);
  for (const int step : {1, 2}) {
    const std::string folder = train::checkpoint_folder(here / "dense", step);
    std::filesystem::create_directories(folder);
    put(folder + "/tensors.safetensors", std::string(50, 'x'));
    put(folder + "/state.json", std::string(10, 'x'));
  }
  CHECK(bytes_to_come(here / "dense", 3, 100).kept == 60);
  CHECK(bytes_to_come(here / "dense", 3, 100).written == 60);
  CHECK(bytes_to_come(here / "dense", 1, 100).kept == 0);
}

TEST_CASE("options: a folder that cannot hold a run is refused before it begins") {
  const scratch_folder here;
  put(here / "file", "");
  const auto refused = [&](string_list const& arguments, double bytes) {
    return error_of<tessera::error>([&] { require_run_folder(new_settings(arguments), "", bytes); });
  };
  const std::string out = "--out=" + (here / "runs");
  CHECK(refused({out}, 1) == "");
  CHECK(refused({out, "--name=a"}, 1) == "");
  CHECK(refused({out, "--name=../a"}, 1) ==
        "[--name] '../a' is not the name of one folder; --out says where it lies");
  CHECK(refused({"--out=" + (here / "file"), "--name=a"}, 1) ==
        "[" + (here / "file/a") + "] nothing can be written there: " + (here / "file") + " is no folder");
  CHECK(refused({"--out="}, 1) == "");  // the folder that the program works in
  const std::string folder = here / "runs", longest(256, 'x');
  CHECK(refused({out, "--name=" + longest}, 1) ==
        "[" + folder + "/" + longest + "] nothing can be written there: File name too long");
  const std::string link = here / "link";
  std::filesystem::create_symlink("nowhere", link);
  CHECK(refused({"--out=" + link, "--name=a"}, 1) ==
        "[" + link + "/a] nothing can be written there: " + link + " is no folder");
  CHECK(refused({"--out=" + (here / ""), "--name=link"}, 1).find("link exists already") != std::string::npos);
  std::filesystem::remove(link);
  const std::string full = refused({out, "--name=a"}, 1e18);
  CHECK(full.starts_with("[" + (here / "runs/a") + "] the checkpoints of this run need 1EB, but "));
  CHECK(full.ends_with("B are free; make room, or --keep fewer"));
  CHECK(here.files() == 1);  // nothing was made
  std::filesystem::create_directories(here / "runs/a");
  CHECK(refused({out, "--name=a"}, 1) == "");  // as a run leaves it that was killed at once
  put(here / "runs/a/settings.json", "{}");
  CHECK(refused({out, "--name=a"}, 1) == "[--name] " + (here / "runs/a") +
                                             " exists already; choose another name, or --resume " +
                                             (here / "runs/a"));
}

TEST_CASE("options: every default is a value its option takes") {
  settings s;
  assign(settings_table(), s, read_json(settings_table(), to_json(settings_table(), settings{}), "defaults"));
  check(s, 1);
  sampling_settings sampling;
  assign(sampling_table(), sampling,
         read_json(sampling_table(), to_json(sampling_table(), sampling_settings{}), "defaults"));
}

TEST_CASE("options: help explains every option with its values and default") {
  const std::string help = help_text(settings_table());
  for (auto const& group : settings_table())
    for (auto const& row : group.options) {
      const std::size_t at = help.find("\n  --" + std::string(row.name));
      CHECK_MESSAGE(at != help.npos, row.name);
    }
  CHECK(help.find("  --layers N                transformer blocks; in [1, 1000]; by default " +
                  std::to_string(settings().layers) + "\n") != help.npos);
  CHECK(help.find("\n  --decay cosine|linear|wsd|power|constant\n" + std::string(28, ' ') + "how the ") !=
        help.npos);
  for (std::size_t begin = 0, end = 0; (end = help.find('\n', begin)) != help.npos; begin = end + 1)
    CHECK(text_width(help.substr(begin, end - begin)) <= 100);
}

TEST_CASE("options: the learning rate suggested for a sparse model grows with sparsity") {
  using tessera::train::suggested_rate;
  CHECK(new_settings({"--lr=2e-4"}).sparse_lr == suggested_rate(2e-4, 0.1));
  CHECK(new_settings({"--lr=2e-4", "--sparse-lr=1e-3"}).sparse_lr == 1e-3);

  const scratch_folder folder;
  const std::string file = folder / "settings.json";
  put(file, tessera::io::to_text(to_json(settings_table(), new_settings({"--lr=2e-4"}))));
  CHECK(new_settings({"--config", file}).sparse_lr == suggested_rate(2e-4, 0.1));
  CHECK(new_settings({"--config", file, "--lr=3e-4"}).sparse_lr == suggested_rate(3e-4, 0.1));
  CHECK(new_settings({"--config", file, "--lr=3e-4", "--sparse-lr=1e-3"}).sparse_lr == 1e-3);
}

TEST_CASE("options: sampling needs a checkpoint") {
  CHECK(new_sampling_settings({"--checkpoint=a", "--prompt=--x", "--top-k=5"}).prompt == "--x");
  CHECK(error_of<tessera::option_error>([] { (void)new_sampling_settings({"--tokens=5"}); }) ==
        "[--checkpoint] is missing: the folder of a run, or one of its checkpoints");
}

TEST_CASE("options: mistakes of use end in code 2 and failures in 1") {
  const char* const arguments[] = {"program", "--a", "b"};
  const auto code = [&](auto body) { return guarded_main("program", 3, arguments, body); };
  CHECK(code([](string_list const& all) { return all == string_list{"--a", "b"} ? 0 : 7; }) == 0);
  CHECK(code([](string_list const&) -> int { throw tessera::option_error("[--a] wrong"); }) == 2);
  CHECK(code([](string_list const&) -> int { throw tessera::io_error("[read] gone"); }) == 1);
  CHECK(code([](string_list const&) -> int { throw std::bad_alloc(); }) == 1);
}

}  // namespace pretrain_options_test
