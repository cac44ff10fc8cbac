// MindSpore's headers for threads include this name, which its wheels do not have.
#pragma once

#include "utils/log_adapter.h"
