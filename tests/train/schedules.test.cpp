// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include <tessera/train/schedules.hpp>

namespace schedules_test {

using namespace tessera::train;

struct entry {
  std::int64_t step;
  double rate;
};

/// Written down with Python: nanoGPT's get_lr, torch's LinearLR.
template <class Schedule> void check(Schedule const& s, std::vector<entry> const& table) {
  for (entry const& e : table) {
    INFO("step ", e.step);
    CHECK(std::abs(s.rate(e.step) - e.rate) <= 1e-12);
  }
}

TEST_CASE("schedules: a constant one never changes") {
  check(constant{0.25}, {{0, 0.25}, {1, 0.25}, {1000000, 0.25}});
}

TEST_CASE("schedules: a linear one follows its table") {
  check(linear{0.5, 0.1, 20}, {{0, 0.5},
                               {1, 0.48},
                               {5, 0.4},
                               {10, 0.3},
                               {15, 0.2},
                               {19, 0.12},
                               {20, 0.09999999999999998},
                               {21, 0.09999999999999998},
                               {100, 0.09999999999999998}});
}

TEST_CASE("schedules: warm-up and cosine follow nanoGPT's table") {
  check(warmed_up<cosine>{100, {6e-4, 6e-5, 900}}, {{0, 5.94059405940594e-06},
                                                    {1, 1.188118811881188e-05},
                                                    {2, 1.7821782178217823e-05},
                                                    {3, 2.376237623762376e-05},
                                                    {5, 3.5643564356435645e-05},
                                                    {8, 5.346534653465346e-05},
                                                    {13, 8.316831683168316e-05},
                                                    {21, 0.00013069306930693067},
                                                    {34, 0.0002079207920792079},
                                                    {55, 0.00033267326732673265},
                                                    {89, 0.0005346534653465346},
                                                    {98, 0.000588118811881188},
                                                    {99, 0.000594059405940594},
                                                    {100, 0.0006},
                                                    {101, 0.0005999983550676034},
                                                    {144, 0.0005968216629905692},
                                                    {233, 0.0005714216439466293},
                                                    {377, 0.0004833178111643373},
                                                    {500, 0.0003768850079700712},
                                                    {610, 0.00027386384347920494},
                                                    {800, 0.00012316800035787594},
                                                    {987, 6.027794615650702e-05},
                                                    {999, 6.0001644932396594e-05},
                                                    {1000, 6e-05},
                                                    {5000, 6e-05}});
}

TEST_CASE("schedules: warm-up and a line follow their table") {
  check(warmed_up<linear>{10, {2, 0, 30}}, {{0, 0.18181818181818182},
                                            {1, 0.36363636363636365},
                                            {4, 0.9090909090909091},
                                            {9, 1.8181818181818181},
                                            {10, 2.0},
                                            {11, 1.9333333333333333},
                                            {20, 1.3333333333333335},
                                            {25, 1.0},
                                            {39, 0.06666666666666665},
                                            {40, 0.0},
                                            {41, 0.0}});
}

TEST_CASE("schedules: warm-up, a plateau and a fall of one minus a root follow their table") {
  // 1 - sqrt((t - 90) / 20) + 0.1 sqrt(...) in Python, 10 steps of warm-up before.
  check(warmed_up<stable_decay>{10, {1, 0.1, 100}}, {{0, 0.09090909090909091},
                                                     {9, 0.9090909090909091},
                                                     {10, 1},
                                                     {89, 1},
                                                     {90, 1},
                                                     {91, 0.7987538820250189},
                                                     {95, 0.55},
                                                     {100, 0.3636038969321072},
                                                     {109, 0.12278850896719329},
                                                     {110, 0.1},
                                                     {500, 0.1}});
  // Until it falls it is that of a longer run.
  const stable_decay shorter{1, 0, 100}, longer{1, 0, 1000};
  for (int step = 0; step <= 80; ++step) CHECK(shorter.rate(step) == longer.rate(step));
  check(stable_decay{1, 0, 4, 1}, {{0, 1}, {1, 0.5}, {4, 0}});
}

TEST_CASE("schedules: warm-up and an inverse square root follow the transformer's") {
  // 512^-0.5 min(t^-0.5, t 4000^-1.5) at t = step + 1, in Python; its warm-up ends one step later than ours.
  const warmed_up<inverse_power> s{3999, {6.987712429686843e-04, 4000}};
  check(s, {{0, 1.746928107421711e-07},
            {99, 1.746928107421711e-05},
            {3999, 6.987712429686843e-04},
            {7999, 4.941058844013093e-04},
            {15999, 3.493856214843422e-04},
            {99999, 1.3975424859373689e-04}});
  check(inverse_power{2, 10, 1}, {{0, 2}, {10, 1}, {30, 0.5}});
}

TEST_CASE("schedules: an extended one rises from the last rate of the first plan to the second plan") {
  const cosine second{1, 0.1, 200};
  const extended<cosine> s{100, 4, 0.2, second};
  CHECK(s.rate(99) == 0.2);
  for (int i = 0; i < 4; ++i)
    CHECK(s.rate(100 + i) == doctest::Approx(0.2 + (second.rate(104) - 0.2) * (i + 1) / 5).epsilon(1e-14));
  CHECK(s.rate(104) == second.rate(104));
  CHECK(s.rate(199) == second.rate(199));
  const extended<cosine> at_once{100, 0, 0.2, second};
  CHECK(at_once.rate(100) == second.rate(100));
}

TEST_CASE("schedules: a rate follows the batch in proportion, or with its root") {
  CHECK(scaled_rate(1e-3, 16, 64, rate_scaling::linear) == doctest::Approx(4e-3).epsilon(1e-14));
  CHECK(scaled_rate(1e-3, 16, 64, rate_scaling::square_root) == doctest::Approx(2e-3).epsilon(1e-14));
}

TEST_CASE("schedules: no warm-up is the schedule itself") {
  const cosine plain{1, 0, 50};
  const warmed_up<cosine> warmed{0, plain};
  for (int step = 0; step < 60; ++step) CHECK(warmed.rate(step) == plain.rate(step));
}

TEST_CASE(
    "schedules: a warm-up that takes all steps rises to the highest rate, though none is left to fall") {
  check(warmed_up<cosine>{3, {1, 0.1, 0}}, {{0, 0.25}, {2, 0.75}, {3, 1}, {4, 0.1}});
  check(warmed_up<linear>{3, {1, 0.1, 0}}, {{0, 0.25}, {2, 0.75}, {3, 1}, {4, 0.1}});
}

}  // namespace schedules_test
