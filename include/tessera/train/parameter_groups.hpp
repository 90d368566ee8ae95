// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/nn/parameter_list.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// How the parameters are trained whose names match: `{.names = "block.0.*", .rate = 0.1}`.
struct parameter_group {
  std::string names;    // as in a checkpoint; each `*` stands for any text
  double rate = 1;      // factor of the learning rate; 0: frozen, without a gradient
  double decay = 1;     // factor of the optimizer's weight decay
  bool evolves = true;  // whether the sparsity policy changes the patterns; frozen parameters keep them

  static void parts(auto& each, auto&... of) {
    each.setting("names", of.names...);
    each.setting("rate", of.rate...);
    each.setting("decay", of.decay...);
    each.setting("evolves", of.evolves...);
  }
  bool is_frozen() const { return rate == 0; }
};

namespace detail {
/// Whether a text has the form of a pattern in which each `*` stands for any text.
constexpr bool matches(std::string_view form, std::string_view text) {
  const std::size_t star = form.find('*');
  if (star == form.npos) return form == text;
  if (text.substr(0, star) != form.substr(0, star)) return false;
  form.remove_prefix(star + 1);
  for (std::size_t skipped = star; skipped <= text.size(); ++skipped)
    if (matches(form, text.substr(skipped))) return true;
  return false;
}
static_assert(matches("*.bias", "a.b.bias") && matches("a*", "a") && matches("*a*b", "xaxab"));
static_assert(!matches("a.*", "b.a.c") && !matches("a", "ab") && !matches("*.bias", "bias"));
}  // namespace detail

/// The groups of a model's parameters. A parameter belongs to the first group that its name matches; one that
/// matches none is trained as it would be without groups.
class parameter_groups {
 public:
  parameter_groups() = default;
  /// Throws option_error for a factor that makes no sense, and for a group that matches no parameter.
  parameter_groups(nn::parameter_list const& model, std::vector<parameter_group> groups);

  static void parts(auto& each, auto&... of) { each("", of.groups_...); }
  /// Of parameter `number`, in the order of for_each_parameter.
  parameter_group const& of_parameter(std::size_t number) const {
    return of_parameter_.empty() ? all_alike() : groups_[of_parameter_[number]];
  }
  /// Of matrix `number`, in the order of evolving_weights.
  bool evolves(std::uint64_t number) const {
    if (of_matrix_.empty()) return true;
    parameter_group const& group = groups_[of_matrix_[number]];
    return group.evolves && !group.is_frozen();
  }

  /// Drops the gradients of frozen parameters; gives zeros to others that have none.
  void fit_gradients(nn::parameter_list const& model, nn::mutable_parameter_list gradients) const;

 private:
  static parameter_group const& all_alike() {
    static const parameter_group alike;
    return alike;
  }
  std::vector<parameter_group> groups_;
  std::vector<std::size_t> of_parameter_, of_matrix_;  // numbers of groups
};

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY void parameter_groups::fit_gradients(nn::parameter_list const& model,
                                                               nn::mutable_parameter_list gradients) const {
  for (std::size_t i = 0; i < model.size(); ++i)
    if (of_parameter(i).is_frozen())
      gradients[i].tensor.drop();
    else if (!nn::is_wanted(gradients[i].tensor))
      gradients[i].tensor.reset_like(model[i].tensor);
}

TESSERA_COLD TESSERA_BODY parameter_groups::parameter_groups(nn::parameter_list const& model,
                                                             std::vector<parameter_group> groups) {
  std::vector<std::int64_t> members(groups.size());
  groups_ = std::move(groups);
  groups_.push_back({});  // of parameters that match none
  const std::vector<std::string> names = model.names();
  const std::string first = names.empty() ? "" : names.front();
  for (std::size_t i = 0; i < model.size(); ++i) {
    std::size_t g = 0;
    while (g < members.size() && !detail::matches(groups_[g].names, names[i])) ++g;
    if (g < members.size()) ++members[g];
    of_parameter_.push_back(g);
    if (model[i].tensor.is_matrix()) of_matrix_.push_back(g);
  }
  for (std::size_t g = 0; g < members.size(); ++g) {
    parameter_group const& group = groups_[g];
    const auto require = [&](char const* what, double value) {
      if (!(value >= 0 && std::isfinite(value)))
        throw option_error(message("[parameter_groups] ", what, " of \"", group.names, "\" is ", value,
                                   ": it is a factor, at least 0"));
    };
    require("rate", group.rate);
    require("decay", group.decay);
    if (members[g] == 0)
      throw option_error(message("[parameter_groups] \"", group.names, "\" matches no parameter",
                                 " that no earlier group has; they have names such as \"", first,
                                 "\", and * stands for any text"));
  }
}

#endif

}}}  // namespace tessera::TESSERA_ISA::train
