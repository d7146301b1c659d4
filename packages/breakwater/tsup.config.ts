import { packageBuild, type PackageBuild } from "../../tsup.base.ts";

const build: PackageBuild = packageBuild({ bin: "src/bin.ts" });
export default build;
