// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <common/progress.hpp>
#include <doctest/doctest.h>
#include <pretrain/curves.hpp>
#include <pretrain/pattern_points.hpp>
#include <pretrain/report.hpp>
#include <pretrain/run_folder.hpp>
#include <pretrain/tensorboard.hpp>

#include <tessera/io/json_parser.hpp>

#include "../io/scratch_folder.hpp"

namespace pretrain_report_test {

using namespace pretrain;

std::size_t count(std::string const& text, std::string const& part) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++found;
  return found;
}

/// The text that `body(file)` writes to a file.
template <class Body> std::string written_by(Body body) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), std::fclose);
  REQUIRE(file);
  body(file.get());
  std::string text(static_cast<std::size_t>(std::ftell(file.get())), '\0');
  std::rewind(file.get());
  CHECK(std::fread(text.data(), 1, text.size(), file.get()) == text.size());
  return text;
}

TEST_CASE("format: numbers are short and the same everywhere") {
  CHECK(fixed(2.45191, 4) == "2.4519");
  CHECK(number(0.1) == "0.1");
  CHECK(number(2e-5) == "2e-05");
  CHECK(scientific(0.00098, 1) == "9.8e-04");
  CHECK(quantity(0) == "0");
  CHECK(quantity(950) == "950");
  CHECK(quantity(999.4) == "999");
  CHECK(quantity(999.6) == "1k");
  CHECK(quantity(12345) == "12.3k");
  CHECK(quantity(4e6) == "4M");
  CHECK(duration_text(seconds(59.4)) == "59s");
  CHECK(duration_text(seconds(59.6)) == "1m00s");
  CHECK(duration_text(seconds(185)) == "3m05s");
  CHECK(duration_text(seconds(7620)) == "2h07m");
  CHECK(padded("→", 3) == "→  ");
  CHECK(padded("ab", 4, padding::before) == "  ab");
  CHECK(padded("abc", 2) == "abc");
}

TEST_CASE("table: columns are aligned and separated for programs") {
  const table t{{"", "dense", "sparse"}, {{"loss, nats", "1.85", "1.8"}, {"a \"name\"", "", "x"}}};
  CHECK(aligned(t) ==
        "            dense  sparse\n"
        "─────────────────────────\n"
        "loss, nats   1.85     1.8\n"
        "a \"name\"                x\n");
  CHECK(csv(t) == ",dense,sparse\n\"loss, nats\",1.85,1.8\n\"a \"\"name\"\"\",,x\n");
}

TEST_CASE("curves: every evaluation is a row of the table and a point of the plot") {
  const std::vector<loss_curve> curves{
      {"dense", {{0, 0, seconds(0), 4.2, 4.25, 0}, {10, 5120, seconds(1.5), 3.1, 3.2, 1e-3}}},
      {"sparse", {{20, 10240, seconds(1.5), 2.9, 3.0, 2e-3}}}};
  CHECK(csv(curve_table(curves)) ==
        "model,step,tokens,seconds,training_loss,validation_loss,learning_rate\n"
        "dense,0,0,0.000,4.2,4.25,0\n"
        "dense,10,5120,1.500,3.1,3.2,0.001\n"
        "sparse,20,10240,1.500,2.9,3,0.002\n");
  const plot by_time = loss_plot("t", curves, {{"bigram", 2.45}}, plot_over::time);
  const plot by_tokens = loss_plot("t", curves, {}, plot_over::tokens);
  REQUIRE(by_time.curves.size() == 2);
  CHECK(by_time.curves[0].x == std::vector<double>{0, 1.5});
  CHECK(by_tokens.curves[0].x == std::vector<double>{0, 5120});
  CHECK(by_time.curves[0].y == std::vector<double>{4.25, 3.2});
  CHECK(by_time.levels.at(0).name == "bigram");
}

TEST_CASE("curves: a loss between two evaluations lies on the line between them") {
  const std::vector<curve_point> points{{10, 100, seconds(1), 3.1, 3.2, 1e-3},
                                        {20, 200, seconds(3), 2.9, 3.0, 1e-3}};
  const auto at = [&](double tokens) {
    return loss_at(points, [](curve_point const& p) { return p.tokens; }, tokens);
  };
  CHECK(at(100) == 3.2);
  CHECK(at(150) == doctest::Approx(3.1));
  CHECK(at(200) == 3.0);
  CHECK(at(300) == 3.0);
  CHECK(std::isnan(at(99)));
}

TEST_CASE("patterns: every update is a row of the table and a line of JSON, and is read again") {
  const std::vector<pattern_point> points{{10, 123456789012, 40, 1, 0.75, 0.5, 0.5},
                                          {20, 123456789012, 20, 0.25, 0.5, 0.625, 0.6}};
  CHECK(csv(pattern_table(points)) ==
        "step,stored,grown,grown_survivors,survivors,explored,expected\n"
        "10,123456789012,40,1.0,0.75,0.5,0.5\n"
        "20,123456789012,20,0.25,0.5,0.625,0.6\n");
  const std::string lines = json_lines(points);
  CHECK(count(lines, "\n") == 2);
  const tessera::io::json second = tessera::io::parse_json(lines.substr(lines.find('\n') + 1));
  CHECK(tessera::io::json_place(second).at("explored").as_number() == 0.625);
  run_record record;
  record.updates = points;
  record.history = tessera::io::json::object{{"updates", 2}};
  record.framed = 1;
  const tessera::io::json stored = to_json(record);
  const run_record again = read_record(tessera::io::json_place(stored));
  CHECK(csv(pattern_table(again.updates)) == csv(pattern_table(points)));
  CHECK(again.history == record.history);
  CHECK(again.framed == 1);
}

TEST_CASE("report: the cost of a sparse FLOP is compared to the loss that both models reached") {
  run_record dense, sparse;
  dense.points = {{100, 0, seconds(1), 0, 3, 0}, {200, 0, seconds(2), 0, 2, 0}};
  sparse.points = {{100, 0, seconds(1), 0, 3.5, 0}, {300, 0, seconds(3), 0, 2.5, 0}};
  dense.reached.step = 200, dense.reached.seconds = 2;
  sparse.reached.step = 300, sparse.reached.seconds = 3;
  const flop_costs costs = flop_costs_of(dense, 1e9, sparse, 0.4e9);
  CHECK(costs.loss == 2.5);
  CHECK(costs.cost == doctest::Approx(2.5));  // an equal time for a step of 0.4 of the FLOPs
  CHECK(costs.critical == doctest::Approx(150 / (0.4 * 300)));
  CHECK(step_to_loss(dense.points, 3) == 100);
  CHECK(step_to_loss(dense.points, 2.25) == doctest::Approx(175));
  CHECK(std::isnan(step_to_loss(dense.points, 1.9)));
}

TEST_CASE("plot: ticks are round numbers that cover the axis") {
  const auto axis = [](double low, double high) {
    plot_axis a;
    a.include(low);
    a.include(high);
    a.choose_ticks(8);
    return a;
  };
  CHECK(axis(0, 90).step == 20);
  CHECK(axis(0, 8).step == 1);
  CHECK(axis(1.7, 4.26).step == 0.5);
  CHECK(axis(0, 2.88e6).step == 500000);
  for (const double high : {1e-9, 0.3, 7.0, 12.0, 99.0, 4.5e9}) {
    plot_axis a = axis(-high / 3, high);
    const std::vector<double> ticks = a.ticks();
    CHECK(ticks.size() >= 4);
    CHECK(ticks.size() <= 9);
    CHECK(std::count(ticks.begin(), ticks.end(), 0) == 1);
    a.round_ends();
    CHECK(a.low <= -high / 3);
    CHECK(a.high >= high);
  }
  CHECK(axis(0, 3).name(2) == "2.0");
  CHECK(axis(0, 90).name(20) == "20");
  CHECK(axis(0, 3e6).name(1.5e6) == "1.5M");
}

TEST_CASE("plot: all that is named is drawn and escaped") {
  const plot p{
      "dense & <sparse>", "x", "y", {{"a", {0, 1, 2}, {3, 2, 1}}, {"b", {0, 2}, {3, 1}}}, {{"low", 0.5}}};
  const std::string image = svg(p);
  CHECK(image.starts_with("<svg "));
  CHECK(image.ends_with("</svg>\n"));
  CHECK(svg({"a\033 <b>", "", "", {}, {}}).find(">a\\x1b &lt;b&gt;</text>") != std::string::npos);
  CHECK(count(image, "dense &amp; &lt;sparse&gt;") == 1);
  CHECK(count(image, "<path ") == 2);
  CHECK(count(image, "stroke-dasharray") == 1);
  CHECK(count(image, ">low 0.50</text>") == 1);
  CHECK(count(image, "<text ") == count(image, "</text>"));
}

TEST_CASE("plot: what is not finite leaves a gap and a plot of nothing is still an image") {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  const std::string image = svg({"", "", "", {{"a", {0, 1, 2, 3, 4}, {1, 2, nan, inf, 1}}}, {}});
  CHECK(image.find("nan") == image.npos);
  CHECK(image.find("inf") == image.npos);
  const std::size_t path = image.find(" d=\"");
  CHECK(count(image.substr(path, image.find('>', path) - path), "M") == 2);
  for (const plot& p : {plot{}, plot{"", "", "", {{"a", {1}, {1}}}, {}}, plot{"", "", "", {}, {{"l", 0}}}})
    CHECK(svg(p).find("nan") == std::string::npos);
}

TEST_CASE("progress: a line says where the run stands") {
  CHECK(progress_line("sparse", {300, 1200, 614400, seconds(30), 2.3456, 9.8e-4}) ==
        "sparse  step  300/1200  loss 2.346  lr 9.80e-04  20.5k tokens/s   25 %   1m30s left");
  CHECK(progress_line("sparse", {300, 1200, 614400, seconds(30), 2.3456, 9.8e-4, seconds(20)}) ==
        "sparse  step  300/1200  loss 2.346  lr 9.80e-04  20.5k tokens/s   25 %   1m50s left");
  CHECK(progress_line("sparse", {1200, 1200, 2457600, seconds(120), 2.3456, 9.8e-4, seconds(20)}) ==
        "sparse  step 1200/1200  loss 2.346  lr 9.80e-04  20.5k tokens/s  100 %     20s to evaluate");
  CHECK(progress_line("dense", {0, 10, 0, seconds(0), 4.2, 0}) ==
        "dense   step  0/10  loss 4.200  lr 0.00e+00      0 tokens/s    0 %       ? left");
}

TEST_CASE("progress: a log has lines now and then and a terminal one line that changes") {
  const auto run = [](progress_style style) {
    return written_by([&](std::FILE* out) {
      progress shown("dense", out, style);
      for (int step = 1; step <= 900; ++step) shown.show({step, 900, 0, seconds(0.1 * step), 3, 1e-3});
    });
  };
  const std::string log = run(progress_style::log), terminal = run(progress_style::terminal);
  CHECK(count(log, "\n") >= 15);
  CHECK(count(log, "\n") <= 20);
  CHECK(count(log, "\r") == 0);
  CHECK(count(log, " 900/900 ") == 1);
  CHECK(count(terminal, "\n") == 1);
  CHECK(terminal.ends_with("\n"));
  CHECK(count(terminal, "\r") > 400);
  CHECK(run(progress_style::none) == "");
}

TEST_CASE("progress: an interrupted terminal line is ended") {
  const auto style = progress_style::terminal;
  const std::string text = written_by([&](std::FILE* out) {
    progress("dense", out, style).show({1, 9, 0, seconds(1), 3, 1e-3});
    std::fputs("next", out);
  });
  CHECK(text.ends_with("\nnext"));
  CHECK(written_by([](std::FILE* out) { CHECK(style_of(out) == progress_style::log); }) == "");
}

TEST_CASE("run record: a run keeps no more checkpoints than it makes") {
  settings s;
  s.keep = 1000, s.steps = 100;
  CHECK(most_checkpoints(s) == 5 + 12 + 1);
  s.eval_every = 30, s.checkpoint_every = 7;
  CHECK(most_checkpoints(s) == 4 + 15 + 1);
  s.keep = 2;
  CHECK(most_checkpoints(s) == 3);
  s.keep = 1000, s.steps = 0;  // nobody knows yet how many fit into the time
  CHECK(most_checkpoints(s) == 1001);
}

TEST_CASE("run folder: none is used twice") {
  const scratch_folder folder;
  settings s;
  s.layers = 4, s.hidden = 256;
  s.out = folder / "deep/runs";
  const std::string first = make_run_folder(s).path.string(), second = make_run_folder(s).path.string();
  CHECK(first == s.out + "/char-4x256-both-16x16-0.1-1");
  CHECK(second == s.out + "/char-4x256-both-16x16-0.1-2");
  CHECK(std::filesystem::is_directory(second));
  s.name = "mine";
  CHECK(make_run_folder(s).path == s.out + "/mine");
  settings of_no_out = s;
  of_no_out.out.clear(), of_no_out.name.clear();
  CHECK(named_folder(of_no_out) == ".");
  CHECK(error_of<tessera::option_error>([&] { (void)make_run_folder(s); }) ==
        "[--name] " + s.out + "/mine exists already; choose another name, or --resume " + s.out + "/mine");
}

TEST_CASE("run folder: a name is one folder and must be possible to make") {
  const scratch_folder folder;
  settings s;
  s.out = folder / "runs";
  for (const char* name : {"a/b", "..", ".", "/"}) {
    s.name = name;
    CHECK_THROWS_AS((void)make_run_folder(s), tessera::option_error);
  }
  put(folder / "file", "");
  s.out = folder / "file";
  for (const char* name : {"", "a"}) {
    s.name = name;
    CHECK(error_of<tessera::io_error>([&] { (void)make_run_folder(s); }).find("[make " + s.out) == 0);
  }
}

TEST_CASE("tensorboard: an event file has records with lengths and checksums") {
  CHECK(masked_crc("123456789") == ((0xe3069283u >> 15 | 0xe3069283u << 17) + 0xa282ead8u));  // RFC 3720, B.4
  const std::string none = tensorboard_events({}),
                    file = tensorboard_events({{300, 1e6, seconds(2.5), 1.5, 1.25, 1e-3}});
  REQUIRE(file.starts_with(none));
  CHECK(none.substr(12, none.size() - 16) ==
        std::string("\x09\0\0\0\0\0\0\0\0\x1a\x0d", 11) + "brain.Event:2");
  const std::string record = file.substr(none.size()), event = record.substr(12, record.size() - 16);
  CHECK(record.substr(0, 8) == protocol_buffer::fixed_size(std::uint64_t(event.size())));
  CHECK(record.substr(8, 4) == protocol_buffer::fixed_size(masked_crc(record.substr(0, 8))));
  CHECK(record.substr(record.size() - 4) == protocol_buffer::fixed_size(masked_crc(event)));
  CHECK(event.substr(0, 12) == "\x09" + protocol_buffer::fixed_size(2.5) + "\x10\xac\x02");  // step 300
  CHECK(event.find("loss/validation\x15" + protocol_buffer::fixed_size(1.25f)) != event.npos);
}

TEST_CASE("curves: a log has a line of JSON for each evaluation") {
  CHECK(json_lines({{"dense", {{3, 96, seconds(0.5), 2, 1.5, 1e-3}}}}) ==
        "{\"model\":\"dense\",\"step\":3,\"tokens\":96.0,\"seconds\":0.5,\"training_loss\":2.0,"
        "\"validation_loss\":1.5,\"learning_rate\":0.001}\n");
}

}  // namespace pretrain_report_test
