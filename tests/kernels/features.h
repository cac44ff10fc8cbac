#pragma once

constexpr double FEATURES_ONE = 1.0;
