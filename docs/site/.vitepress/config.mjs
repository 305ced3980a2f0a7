// The pages of docs/ as a site. VitePress refuses to build with a link that leads nowhere.
import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitepress'

const page = (text, link) => ({ text, link })

export default defineConfig({
  title: 'AgentBox',
  srcDir: '..',
  srcExclude: ['site/**'],
  outDir: process.env.SITE_OUT ?? '../../dist/site',
  rewrites: { 'README.md': 'index.md', 'reference/README.md': 'reference/index.md' },
  cleanUrls: true,
  markdown: { html: false },
  // The pages stand above node_modules, so vue is looked for here.
  vite: { resolve: { alias: { vue: fileURLToPath(new URL('../node_modules/vue', import.meta.url)) } } },
  themeConfig: {
    search: { provider: 'local' },
    sidebar: [
      { text: 'Use', items: [page('Installation', '/installation'), page('Concepts', '/concepts'), page('Command line', '/cli-guide'), page('E2B SDK', '/e2b'), page('Agents', '/agents')] },
      { text: 'Run', items: [page('Operations', '/operations'), page('Security', '/security'), page('Compatibility', '/compatibility'), page('Releases', '/releases')] },
      { text: 'Reference', items: [page('Commands', '/reference/'), page('Native API', '/api'), page('x-abx', '/x-abx'), page('Dependencies', '/dependencies'), page('Contributing', '/contributing')] },
    ],
  },
})
