import { defineConfig, type ViteUserConfig } from "vitest/config";

// By its name `npm run conformance` asks for it. Boxes are made by few cores.
const config: ViteUserConfig = defineConfig({ test: { name: "live", maxWorkers: 1, maxConcurrency: 3 } });
export default config;
