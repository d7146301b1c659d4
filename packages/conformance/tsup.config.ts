import { packageBuild, type PackageBuild } from "../../tsup.base.ts";

const build: PackageBuild = packageBuild({ runtime: "src/runtime.ts", grading: "src/grading.ts" });
export default build;
