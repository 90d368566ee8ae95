// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include <unistd.h>

#include "format.hpp"

namespace programs {

/// Where a run stands. Times and tokens count from its first step, also in a resumed run.
struct progress_report {
  int step, steps;
  double tokens;
  seconds training_time;
  double loss, learning_rate;
  seconds evaluations{0};  ///< of evaluations that are still to come
  const char* unit = "tokens";
};

inline std::string progress_line(std::string const& name, progress_report const& now) {
  const double done = static_cast<double>(now.step) / std::max(1, now.steps);
  const double spent = now.training_time.count();
  const std::string steps = std::to_string(now.steps), step = std::to_string(now.step);
  return padded(name, 7) + " step " + padded(step, steps.size(), padding::before) + "/" + steps + "  loss " +
         fixed(now.loss, 3) + "  lr " + scientific(now.learning_rate, 2) + "  " +
         padded(quantity(spent > 0 ? now.tokens / spent : 0), 5, padding::before) + " " + now.unit + "/s  " +
         padded(fixed(100 * done, 0), 3, padding::before) + " %  " +
         padded(done > 0 ? duration_text(now.training_time * (1 / done - 1) + now.evaluations) : "?", 6,
                padding::before) +
         (now.step == now.steps && now.evaluations.count() > 0 ? " to evaluate" : " left");
}

/// How progress is shown: one line rewritten in a terminal, lines now and then in a log, or not at all.
enum class progress_style { terminal, log, none };

inline progress_style style_of(std::FILE* out) {
  const char* terminal = std::getenv("TERM");
  const bool can_rewrite = isatty(fileno(out)) && terminal && std::string_view(terminal) != "dumb";
  return can_rewrite ? progress_style::terminal : progress_style::log;
}

/// The progress of one run.
class progress {
 public:
  progress(std::string name, std::FILE* out, progress_style style)
      : name_(std::move(name)), out_(out), style_(style) {}
  progress(progress const&) = delete;
  progress& operator=(progress const&) = delete;
  ~progress() { end_line(); }

  /// To be called after every step. A terminal changes ten times a second; in a log the lines are 5 seconds
  /// apart and later a tenth of the time so far: 16 in 90 seconds, 80 in ten hours. The last step is shown.
  void show(progress_report const& now) {
    const bool last = now.step == now.steps;
    if (style_ == progress_style::none || (now.training_time < next_ && !last)) return;
    const bool rewrite = style_ == progress_style::terminal;
    next_ = now.training_time + (rewrite ? seconds(0.1) : std::max(seconds(5), now.training_time / 10));
    const std::string line = progress_line(name_, now);
    std::fprintf(out_, rewrite ? "\r%s\033[K" : "%s\n", line.c_str());
    std::fflush(out_);
    open_ = rewrite;
    if (last) end_line();
  }

  /// Ends a line that would be rewritten, so that something else can be printed.
  void end_line() {
    if (std::exchange(open_, false)) std::fputs("\n", out_);
  }

 private:
  std::string name_;
  std::FILE* out_;
  progress_style style_;
  seconds next_{0};
  bool open_ = false;
};

}  // namespace programs
