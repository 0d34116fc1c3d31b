// A decoy: a consumer may have a file of this name.
#pragma once
#define DECOY_COMMON_STATUS_H 1
