// The threads behind a control plane: the hub's on rank 0, a member's elsewhere.
#pragma once

#include <vector>

#include "collectives/bootstrap/internal/connection.h"
#include "collectives/bootstrap/internal/judge.h"
#include "collectives/bootstrap/internal/mailbox.h"

namespace zpp::internal {

// Both run until the mailbox asks to stop, then see to it that what was queued (verdict, leave) has
// been read, for at most a quarter of a second.
void RunHub(std::vector<Connection> ranks, const Patience& patience, Mailbox& mailbox);
void RunMember(Connection hub, const Patience& patience, Mailbox& mailbox);

// Seconds of the steady clock.
double SteadyNow_s();
// Reads what comes until the peer closes, or the time is up: unread bytes would reset the
// connection and destroy what is still on its way to the peer.
void CloseGently(std::vector<Connection>& connections, double seconds);

}  // namespace zpp::internal
