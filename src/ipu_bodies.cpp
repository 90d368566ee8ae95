// SPDX-License-Identifier: BSD-3-Clause

// Bodies of the emulated machine, which few programs take. Bodies of the headers that it includes are in
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
#include <tessera/ipu/exchange.hpp>
#include <tessera/ipu/graph/engine.hpp>
#include <tessera/ipu/graph/graph.hpp>
#include <tessera/ipu/graph/memory_plan.hpp>
#include <tessera/ipu/graph/races.hpp>
#include <tessera/ipu/popsparse/bucket_travel.hpp>
#include <tessera/ipu/popsparse/buckets.hpp>
#include <tessera/ipu/popsparse/dense_plan.hpp>
#include <tessera/ipu/popsparse/dynamic_load.hpp>
#include <tessera/ipu/popsparse/dynamic_plan.hpp>
#include <tessera/ipu/popsparse/options.hpp>
#include <tessera/ipu/popsparse/row_sums.hpp>
#include <tessera/ipu/popsparse/static_cost.hpp>
#include <tessera/ipu/popsparse/static_plan.hpp>
#include <tessera/ipu/profile.hpp>
#include <tessera/ipu/report/pictures.hpp>
#include <tessera/ipu/report/report.hpp>
#include <tessera/ipu/report/report_page.hpp>
#include <tessera/ipu/runs/machine.hpp>
#include <tessera/ipu/runs/placement.hpp>
#include <tessera/ipu/runs/task_cost.hpp>
#include <tessera/ipu/target.hpp>
