#include "cli/run_cli.h"

int main(int argc, char** argv) { return zpp::cli::RunCli(argc, argv); }
