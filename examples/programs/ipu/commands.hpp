// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include <tessera/ipu/profile.hpp>
#include <tessera/ipu/target.hpp>

#include "settings.hpp"

namespace ipu_program {

// Each returns the program's exit code.
int plan_product(settings const& s);
int emulate_product(settings const& s);
int sweep_products(settings const& s);
int map_products(settings const& s);
int train_step(settings const& s);
int measure_host(settings const& s);

/// The target that is asked for, with the numbers that are changed.
tessera::ipu::target asked_target(settings const& s);
int asked_threads(settings const& s);
/// Says that a file was written.
void print_written(std::string const& path);
/// Prints a report, and writes it to the files that are asked for.
void deliver(settings const& s, tessera::ipu::profile const& report, std::string const& pictures = {});

}  // namespace ipu_program
