// SPDX-License-Identifier: BSD-3-Clause

// Bodies of the emulated machine, which few programs take. Those of the headers that it needs are in
// bodies.cpp.

#include <tessera/core/memory.hpp>
#include <tessera/exec/machine.hpp>
#include <tessera/exec/phase.hpp>
#include <tessera/exec/thread_pool.hpp>
#include <tessera/io/json_parser.hpp>
#include <tessera/tensor/pattern_sources.hpp>

#define TESSERA_BODY
#include <tessera/ipu/codelets.hpp>
#include <tessera/ipu/cost.hpp>
#include <tessera/ipu/dense_plan.hpp>
#include <tessera/ipu/dynamic_plan.hpp>
#include <tessera/ipu/engine.hpp>
#include <tessera/ipu/exchange.hpp>
#include <tessera/ipu/graph.hpp>
#include <tessera/ipu/machine.hpp>
#include <tessera/ipu/memory_plan.hpp>
#include <tessera/ipu/options.hpp>
#include <tessera/ipu/placement.hpp>
#include <tessera/ipu/profile.hpp>
#include <tessera/ipu/races.hpp>
#include <tessera/ipu/report.hpp>
#include <tessera/ipu/report_page.hpp>
#include <tessera/ipu/static_plan.hpp>
#include <tessera/ipu/static_product.hpp>
#include <tessera/ipu/target.hpp>
#include <tessera/ipu/task_cost.hpp>
