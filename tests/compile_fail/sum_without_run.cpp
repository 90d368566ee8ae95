// expect one error: computes nothing until it is given to run
// SPDX-License-Identifier: BSD-3-Clause
#include <tessera/tessera.hpp>

using namespace tessera;

void f(panel_matrix<float> const& dy, feature_vector<float>& gradient) { gradient += sum_tokens(dy); }
