// The control plane over TCP: a star on rank 0, open for the communicator's life, watched by one
// small thread per rank.
#pragma once

#include <memory>

#include "collectives/bootstrap/out_of_band.h"
#include "collectives/bootstrap/rendezvous.h"

namespace zpp {

struct ControlOptions {
  double heartbeat_s = 0.2;
  // A rank that is silent for so long is lost though nobody waits for it. One that somebody waits
  // for: see Report.
  double timeout_s = 30;
};
// With the heartbeat of ZPP_HEARTBEAT.
Result<ControlOptions> ControlOptionsFromEnv(double timeout_s);

// Meets all ranks (see rendezvous.h) and stays connected. A world of two or more.
//
// Who is lost: a rank whose connection ends without Leave; one that is silent for `timeout_s`, or
// for max(5 heartbeats, 1 s) once any rank has reported that it is stuck; one that lives but that
// those who reported wait for. The hub is rank 0: when it is gone or silent each rank says "lost 0"
// itself. Destruction without Leave is a loss to the others.
Result<std::shared_ptr<ControlPlane>> JoinControlPlane(RendezvousSpec spec,
                                                       const ControlOptions& options,
                                                       Deadline deadline);

}  // namespace zpp
