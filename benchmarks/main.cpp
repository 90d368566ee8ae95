// SPDX-License-Identifier: BSD-3-Clause

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <harness/check.hpp>
#include <harness/machine.hpp>
#include <harness/question.hpp>
#include <harness/report.hpp>
#include <harness/timing.hpp>
#include <unistd.h>

#include <tessera/core/cpu.hpp>
#include <tessera/io/file.hpp>

namespace bench { namespace {

constexpr const char* usage =
    R"(bench [QUESTION …] [OPTION …]: times the library beside its peers; without a question asks those marked *.
  --json FILE    write machine and records as JSON, after each question those so far
  --results DIR  the same, in a file named after the questions and the threads
  --only TEXT    only operations and block sizes that contain it: bert, 16x16
  --threads N    of every contestant (default 1; the question `scaling` compares several with one)
  --seconds S    measure each contestant at each size for at least this long (default 0.25, and 5 rounds)
  --quick        every question at small sizes, one round: only shows that everything that is timed is right
  --help         this text
Shares are of the multiply-add peak of that many threads, measured beside every sample; medians and quartiles of
rounds in which all contestants of a group take turns. "unsteady" marks quartiles further apart than a tenth.
Questions:
)";

struct settings {
  std::set<std::string> asked;  // all if empty
  std::string json_file, results, only;
  int threads = 1;
  effort measure;
  bool quick = false, help = false;
};

template <class Number> Number number_after(std::string const& option, std::string_view text, Number least) {
  Number value{};
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc{} || end != text.data() + text.size() || !(value >= least))
    throw option_error(
        message("[bench] ", option, " ", std::string(text), ": it takes a number of at least ", least));
  return value;
}

settings parse(std::vector<std::string> arguments) {
  settings s;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string name = arguments[i];
    if (const std::size_t equals = name.find('='); name.starts_with("--") && equals != std::string::npos) {
      arguments.insert(arguments.begin() + std::ptrdiff_t(i) + 1, name.substr(equals + 1));
      name.resize(equals);
    }
    const auto value = [&] {
      if (++i == arguments.size()) throw option_error("[bench] " + name + " needs a value");
      return arguments[i];
    };
    if (name == "--json")
      s.json_file = value();
    else if (name == "--results")
      s.results = value();
    else if (name == "--only")
      s.only = value();
    else if (name == "--threads")
      s.threads = number_after(name, value(), 1);
    else if (name == "--seconds")
      s.measure.seconds = number_after(name, value(), 0.0);
    else if (name == "--quick")
      s.quick = true;
    else if (name == "--help" || name == "-h")
      s.help = true;
    else if (name.starts_with("-"))
      throw option_error("[bench] there is no option " + name + "; --help lists them");
    else
      s.asked.insert(name);
  }
  if (s.threads > exec::available_threads())
    throw option_error(message("[bench] ", s.threads, " threads asked for, but this process may use ",
                               exec::available_threads(), " cores"));
  if (s.quick) s.measure = {1, 0, 0};
  return s;
}

workload shrunk(workload what, question const& to) {
  std::tie(what.m, what.k, what.n) = std::tuple_cat(to.small);
  return what;
}

/// The questions to ask; when quick, at small sizes and without goals.
std::vector<question> chosen(settings const& s) {
  std::vector<question> all = questions(s.threads);
  for (std::string const& name : s.asked)
    if (std::ranges::none_of(all, [&](question const& q) { return q.name == name; })) {
      std::string known;
      for (question const& q : all) known += " " + q.name;
      throw option_error("[bench] there is no question " + name + ", but:" + known);
    }
  if (s.quick)
    for (question& q : all) {
      q.goal = {};
      q.compare = {};
      for (auto& group : q.groups)
        for (workload& what : group) what = shrunk(what, q);
      auto last = q.groups.begin();  // of the groups that differ
      for (auto& group : q.groups)
        if (std::find(q.groups.begin(), last, group) == last) std::swap(*last++, group);
      q.groups.erase(last, q.groups.end());
    }
  for (question& q : all) {
    for (auto& group : q.groups)
      std::erase_if(group, [&](workload const& what) {
        return message(what.operation, " ", block_name(what.block)).find(s.only) == std::string::npos;
      });
    std::erase_if(q.groups, [](auto const& group) { return group.empty(); });
  }
  std::erase_if(all, [&](question const& q) {
    return s.asked.empty() ? !q.by_default && !s.quick && !s.help : !s.asked.contains(q.name);
  });
  return all;
}

/// Where to write the results: "" for nowhere, else as told or, in a folder, "peers-2-threads.json".
std::string json_file_of(settings const& s) {
  if (s.results.empty() || s.quick) return s.json_file;
  std::string name;
  for (std::string const& question : s.asked) name += (name.empty() ? "" : "-") + question;
  if (name.empty()) name = "default";
  if (s.threads > 1) name += message("-", s.threads, "-threads");
  return s.results + "/" + name + ".json";
}

void write(std::string const& file, io::json const& machine, io::json::array const& records) {
  if (file.empty()) return;
  io::json report;
  report["machine"] = machine;
  report["records"] = records;
  io::write_atomically(file, io::to_text(report, 1) + "\n");
}

/// The line that shows how far we are: rewritten in place on a terminal, else not printed.
class progress_line {
 public:
  explicit progress_line(std::size_t groups) : groups_(groups), start_(now_ns()) {}
  void show(std::size_t group, question const& q, std::string const& doing) const {
    if (!terminal_) return;
    const double seconds = (now_ns() - start_) * 1e-9;
    std::fprintf(stderr, "\r\033[K[%zu/%zu, %d s] %s: %s", group + 1, groups_, int(seconds), q.name.c_str(),
                 doing.c_str());
  }
  void clear() const {
    if (terminal_) std::fprintf(stderr, "\r\033[K");
  }

 private:
  bool terminal_ = isatty(2) != 0;
  std::size_t groups_;
  double start_;
};

/// The contestants of a group: every result is checked once at the small size, and some at the size that is
/// timed.
std::vector<entrant> prepare(question const& q, std::vector<workload> const& group) {
  static std::vector<std::pair<std::string, workload>> checked;
  std::vector<entrant> entrants;
  for (workload const& what : group)
    for (contestant const& who : contestants()) {
      if (who.operation != what.operation || (q.invites && !q.invites(who.name))) continue;
      const workload small = shrunk(what, q);
      const std::pair once(who.name, small);
      if (what != small && std::ranges::find(checked, once) == checked.end()) {
        const auto work = who.prepare(small);
        if (!work) continue;
        check(*work, name_of(small, who.name), work->results);
        checked.push_back(once);
      }
      auto work = who.prepare(what);
      if (!work) continue;
      check(*work, name_of(what, who.name), what == small ? work->results : 100);
      entrants.push_back({what, who.name, *std::move(work), {}});
    }
  return entrants;
}

int answer(settings const& s) {
  const std::vector<question> asked = chosen(s);
  if (s.help) {
    std::fputs(usage, stdout);
    for (question const& q : asked)
      std::printf("%c %-12s %s\n", q.by_default ? '*' : ' ', q.name.c_str(), q.asks.c_str());
    return 0;
  }
  require_compiled_instruction_set();
  std::ranges::sort(contestants(), [](contestant const& a, contestant const& b) {
    return std::pair(!is_ours(a.name), a.name) < std::pair(!is_ours(b.name), b.name);
  });

  io::json machine = describe_machine(std::max(s.threads, std::min(2, exec::available_threads())));
  std::printf("%s, %s, %s, %s\npeaks, GFLOP/s: %s\n", machine.at("name").as_string().c_str(),
              machine.at("instruction_set").as_string().c_str(), machine.at("compiler").as_string().c_str(),
              machine.at("flags").as_string().c_str(), io::to_text(*machine.find("measured_peaks")).c_str());
  std::size_t groups = 0, group = 0;
  for (question const& q : asked) groups += q.groups.size();
  const progress_line progress(groups);
  const std::string file = json_file_of(s);
  if (const auto folder = std::filesystem::path(file).parent_path(); !folder.empty())
    std::filesystem::create_directories(folder);
  const double start = now_ns();
  io::json::array records;
  score goals;
  for (question const& q : asked) {
    print_heading(q);
    if (q.groups.empty())
      std::printf("left out: %s\n", s.only.empty() ? "this process may use one core only"
                                                   : ("it has no operation or block size " + s.only).c_str());
    for (std::vector<workload> const& workloads : q.groups) {
      progress.show(group, q, "checking results");
      std::vector<entrant> entrants = prepare(q, workloads);
      time_in_turn(entrants, s.measure, [&](int round, int rounds) {
        progress.show(group, q, message("round ", round + 1, " of ", rounds));
      });
      progress.clear();
      for (entrant const& e : entrants)
        if (!e.work.library.empty()) machine["libraries"][e.name] = e.work.library;
      report(q, entrants, goals, records);
      ++group;
    }
    write(file, machine, records);
  }
  std::printf("\n%zu results in %.0f s, all right", records.size(), (now_ns() - start) * 1e-9);
  std::printf(s.quick ? "\n" : "; %d goals met, %d missed\n", goals.met, goals.missed);
  if (io::json const* const libraries = machine.find("libraries"))
    for (io::json_member const& each : *libraries->get_if<io::json::object>())
      std::printf("%-20s %s\n", each.key.c_str(), each.value.get_if<std::string>()->c_str());
  return 0;
}

}}  // namespace bench

int main(int argc, char** argv) {
  try {
    return bench::answer(bench::parse({argv + 1, argv + argc}));
  } catch (tessera::option_error const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
