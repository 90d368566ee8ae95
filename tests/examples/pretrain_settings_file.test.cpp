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

namespace pretrain_settings_file_test {

using namespace pretrain;

std::string refusal_of(string_list const& arguments) {
  return error_of<tessera::option_error>([&] { check(new_settings(arguments), 2); });
}
TEST_CASE("settings file: arguments override a settings file and that overrides the defaults") {
  const scratch_folder folder;
  const std::string file = folder / "settings.json";
  put(file, R"({"layers": 7, "lr": 0.002, "static": true, "text": ["a", "b"], "time": "2m"})");
  const settings s = new_settings({"--layers=2", "--config", file});
  CHECK(s.layers == 2);
  CHECK(s.lr == 0.002);
  CHECK(s.static_pattern);
  CHECK(s.text == string_list{"a", "b"});
  CHECK(s.time == seconds(120));
  CHECK(s.hidden == settings().hidden);
  CHECK(new_settings({"--config", file, "--text", "c"}).text == string_list{"c"});
}

TEST_CASE("settings file: what follows from another setting follows a new one over a file, too") {
  const scratch_folder folder;
  const std::string file = folder / "settings.json", free = folder / "free.json", line = folder / "line.json";
  put(file, R"({"optimizer": "adamw", "decay": "cosine", "norm": "pre", "average": "ema", "steps": 100})");
  put(free, R"({"optimizer": "schedule-free", "decay": "constant", "norm": "pre"})");
  put(line, R"({"optimizer": "adamw", "decay": "linear", "norm": "pre"})");
  CHECK(new_settings({"--config", file, "--optimizer=schedule-free", "--average=none"}).decay == "constant");
  CHECK(new_settings({"--config", free, "--optimizer=adamw"}).decay == "cosine");
  CHECK(new_settings({"--config", free, "--layers=2"}).decay == "constant");
  CHECK(new_settings({"--config", line, "--optimizer=lion"}).decay == "linear");
  CHECK(
      new_settings({"--config", file, "--optimizer=schedule-free", "--average=none", "--decay=wsd"}).decay ==
      "wsd");
  CHECK(new_settings({"--config", file, "--residual=rezero"}).norm == "none");
  CHECK(new_settings({"--config", file, "--residual=rezero", "--norm=pre"}).norm == "pre");
  CHECK(new_settings({"--config", line, "--model=bert"}).norm == "post");
  CHECK(refusal_of({"--config", file, "--optimizer=schedule-free"}) ==
        "[--average] ema has no meaning with --optimizer schedule-free, which has an average of its own; say "
        "--average none");
  CHECK(refusal_of({"--optimizer=schedule-free", "--prune-score=momentum"}) ==
        "[--prune-score] momentum has no meaning with --optimizer schedule-free, which keeps none; say norm");
  CHECK(refusal_of({"--steps=10", "--batch=4", "--context=32", "--warmup-tokens=1280"}) ==
        "[--warmup-tokens] 1280 are not less than the 1280 that the run shows; say less");
}

TEST_CASE("settings file: a time in the arguments replaces the steps of a settings file") {
  const scratch_folder folder;
  const std::string file = folder / "settings.json";
  put(file, R"({"steps": 100})");
  CHECK(new_settings({"--config", file}).steps == 100);
  CHECK(new_settings({"--config", file, "--time=5s"}).steps == 0);
}

TEST_CASE("settings file: a preset in a settings file is one, and the file goes over it") {
  const scratch_folder folder;
  put(folder / "a.json", R"({"model": "bert", "preset": "tiny", "layers": 3})");
  const settings s = new_settings({"--config", folder / "a.json"});
  CHECK(s.layers == 3);
  CHECK(s.hidden == 128);
  CHECK(s.lr == 2e-4);
  CHECK(s.level == "wordpiece");
  CHECK(new_settings({"--config", folder / "a.json", "--preset", "mini"}).layers == 4);
  CHECK(refusal_of({"--config", folder / "a.json", "--preset=xl"}) ==
        "[--preset] 'xl' is not one of tiny|mini|small|medium|base");
  CHECK(refusal_of({"--preset=huge"}) == "[--preset] 'huge' is not one of tiny|mini|small|medium|large|xl");
  CHECK(refusal_of({"--preset="}) == "[--preset] '' is not one of tiny|mini|small|medium|large|xl");
  put(folder / "a.json", R"({"preset": "huge"})");
  CHECK(refusal_of({"--config", folder / "a.json"}) ==
        "[" + (folder / "a.json") + ": preset] 'huge' is not one of tiny|mini|small|medium|large|xl");
  put(folder / "b.json", R"({"model": "rnn", "batch": 4})");
  CHECK(new_settings({"--config", folder / "b.json"}).batch == 4);
  CHECK(refusal_of({"--density=0.9999"}) ==
        "[--density] 0.9999 leaves none of the 2304 blocks of the largest matrix out; say --only dense");
  CHECK(refusal_of({"--lr=1e308"}) ==
        "[--lr] is too large: what is suggested for the sparse model is no number any more");
}

TEST_CASE("settings file: the settings of a sparse GPT-2 have its size, and all of them are known") {
  const std::string file = TESSERA_SOURCE_DIR "/examples/programs/pretrain/gpt2_sparse.json";
  const settings s = new_settings({"--config", file});
  check(s, 2);
  const variant v = variants_of(s).at(0);
  CHECK(v.name == "sparse");
  CHECK(v.lr == 2e-4);
  // Of each layer a tenth of 12 h² in blocks of 16 x 16, and biases and norms; the tables are dense.
  const model_description what = description_of(s, v, 16000);
  const auto size = tessera::nn::gpt<float, tessera::block_shape<16>>::size(what.shape);
  const std::int64_t h = 768, blocks = 2304;
  const auto stored = [](std::int64_t all) { return 256 * std::llround(0.1 * double(all)); };
  const std::int64_t layer =
      stored(3 * blocks) + stored(blocks) + 2 * stored(4 * blocks) + (3 + 1 + 4 + 1) * h + 4 * h;
  CHECK(size.live_parameters == 12 * layer + (16000 + 256) * h + 2 * h);
  CHECK(size.multiply_adds ==
        12 * (stored(3 * blocks) + stored(blocks) + 2 * stored(4 * blocks)) + 16000 * h);
}

TEST_CASE("settings file: mistakes in a settings file name the file and the setting") {
  const scratch_folder folder;
  const std::string file = folder / "settings.json";
  put(file, "{\"hiden\": 128}");
  const auto read = [&] { (void)new_settings({"--config", file}); };
  CHECK(error_of<tessera::option_error>(read) ==
        "[" + file + ": hiden] there is no such option; did you mean hidden?");
  put(file, "{\"layers\": 1.5}");
  CHECK(error_of<tessera::option_error>(read) ==
        "[" + file + ": layers] '1.5' is not a whole number in [1, 1000]");
  put(file, "{\"layers\": [1, 2]}");
  CHECK(error_of<tessera::option_error>(read) == "[" + file + ": layers] takes a number, not an array");
  put(file, "{\"dry-run\": true}");
  CHECK(error_of<tessera::option_error>(read) ==
        "[" + file + ": dry-run] is no setting; say --dry-run in the command");
  const std::string time = "takes a number of seconds, or a text such as \"3m\", not ",
                    texts = "takes a text, or a list of texts, not ";
  for (auto const& [setting, told] : std::initializer_list<std::pair<std::string, std::string>>{
           {"\"layers\": null", "takes a number, not null"},
           {"\"layers\": {}", "takes a number, not an object"},
           {"\"layers\": [1]", "takes a number, not an array"},
           {"\"layers\": \"1\"", "takes a number, not a string"},
           {"\"dropout\": true", "takes a number, not a boolean"},
           {"\"seed\": [[1]]", "takes a number, not an array"},
           {"\"name\": 5", "takes a text, not an integer"},
           {"\"name\": null", "takes a text, not null"},
           {"\"name\": {}", "takes a text, not an object"},
           {"\"static\": 1", "takes true or false, not an integer"},
           {"\"static\": \"true\"", "takes true or false, not a string"},
           {"\"time\": null", time + "null"},
           {"\"time\": [90]", time + "an array"},
           {"\"text\": null", texts + "null"},
           {"\"text\": [null]", texts + "an array"},
           {"\"text\": [[\"a\"]]", texts + "an array"},
           {"\"text\": 5", texts + "an integer"}}) {
    put(file, "{" + setting + "}");
    const std::string name = setting.substr(1, setting.find('"', 1) - 1);
    CHECK(error_of<tessera::option_error>(read) == "[" + file + ": " + name + "] " + told);
  }
  for (const char* const setting : {"\"dropout\": 0", "\"lr\": 1e-3", "\"time\": 90", "\"time\": \"3m\"",
                                    "\"text\": \"a\"", "\"text\": [\"a\", \"b\"]", "\"static\": true"}) {
    put(file, std::string("{") + setting + "}");
    CHECK(error_of<tessera::option_error>(read) == "");
  }
  put(file, "{\"layers\": ");
  CHECK_THROWS_AS(read(), tessera::io_error);
}

TEST_CASE("settings file: stored settings come back as they were") {
  const settings s = new_settings({"--layers=3", "--seed=18446744073709551615", "--lr=0.1", "--text", "a",
                                   "b \"c\"", "--time=2m", "--static", "--only=sparse", "--density=0.3"});
  const tessera::io::json stored = to_json(settings_table(), s);
  const std::string text = tessera::io::to_text(stored, 2);
  const settings again = stored_settings(tessera::io::parse_json(text), "stored");
  CHECK(to_json(settings_table(), again) == stored);
  CHECK(again.seed == s.seed);
  CHECK(again.text == s.text);
  CHECK(again.time == s.time);
  CHECK(stored.find("help") == nullptr);
}

TEST_CASE("settings file: a resumed run keeps what decides its results") {
  settings stored = new_settings({"--hidden=128", "--threads=2"});
  stored.steps = 1234;  // as found by timing
  const settings s = resumed_settings(stored, {"--resume", "runs/a", "--threads=1", "--hidden=128"});
  CHECK(s.threads == 1);
  CHECK(s.steps == 1234);
  CHECK(s.resume == "runs/a");
  CHECK(error_of<tessera::option_error>([&] {
          (void)resumed_settings(stored, {"--resume=runs/a", "--hidden=256"});
        }) == "[--hidden] is 128 in the run to be resumed, not 256; leave it out, or start a new run");
}

TEST_CASE("settings file: a resumed run may become longer, but not shorter") {
  const auto refusal = [](settings const& stored, std::string const& argument) {
    return error_of<tessera::option_error>(
        [&] { (void)resumed_settings(stored, {"--resume=runs/a", argument}); });
  };
  const settings by_steps = new_settings({"--steps=1234"}), by_time = new_settings({"--time=2m"});
  CHECK(resumed_settings(by_steps, {"--resume=runs/a", "--steps=2000"}).steps == 2000);
  CHECK(resumed_settings(by_time, {"--resume=runs/a", "--time=3m"}).time == seconds(180));
  CHECK(refusal(by_steps, "--steps=1000") ==
        "[--steps] is 1234 in the run to be resumed, and may only be more; --until-tokens ends it earlier");
  CHECK(refusal(by_time, "--time=1m") ==
        "[--time] is 2m00s in the run to be resumed, and may only be more; --until-tokens ends it earlier");
  CHECK(refusal(by_steps, "--time=3m") == "[--time] the run was planned by --steps; say how many in all");
  CHECK(refusal(by_time, "--steps=9") == "[--steps] the run was planned by --time; say how much in all");
}

}  // namespace pretrain_settings_file_test
