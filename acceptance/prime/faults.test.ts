import { describeFaults } from "./describe-faults.ts";
import { faultsNamed } from "./faults.ts";

/*
 * Whole trials while the service fails in the ways that its users know: the reward is the verifier's or there is none, the agent's box is gone before
 * the verifier's is asked for, and no sandbox is left. All faults and all pairs are in `faults.long.test.ts`; here is what is about the end of boxes.
 */

describeFaults("vm", [
  faultsNamed("DELETE 500 twice"),
  faultsNamed("DELETE 404 without effect"),
  faultsNamed("DELETE 409"),
  faultsNamed("DELETE 200, lives on for 20 s"),
  faultsNamed("provisioning outlasts the verifier"),
  faultsNamed("API away for 30 s"),
  faultsNamed("DELETE 500 twice", "DELETE 200, lives on for 20 s"),
  faultsNamed("provisioning outlasts the verifier", "deletion races the start"),
  faultsNamed("agent's stream cut", "DELETE 404 without effect"),
]);

describeFaults("container", [
  faultsNamed("DELETE 500 twice", "program 502"),
  faultsNamed("create's answer lost", "DELETE 409"),
]);
