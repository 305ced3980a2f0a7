// The pages of docs/ as a site. A link that leads nowhere fails the build.
import { copyFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { defineConfig } from 'vitepress'
import { deadLinks } from '../links.mjs'

const page = (text, link) => ({ text, link })

// A README.md is the index of its folder here, and VitePress renames pages without their links.
const linkToIndex = (md) =>
  md.core.ruler.push('link_to_index', ({ tokens }) => {
    for (const token of tokens.flatMap((t) => t.children ?? [])) {
      if (token.type === 'link_open') token.attrSet('href', token.attrGet('href').replace(/^((?!\w+:).*\/|)README\.md(?=$|#)/, '$1index.md'))
    }
  })

// Files that pages link to and that are no pages.
const files = ['agent-context.schema.json']

export default defineConfig({
  title: 'AgentBox',
  srcDir: '..',
  srcExclude: ['site/**'],
  outDir: process.env.SITE_OUT ?? '../../dist/site',
  rewrites: { 'README.md': 'index.md', 'reference/README.md': 'reference/index.md' },
  cleanUrls: true,
  markdown: { html: false, config: linkToIndex },
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
  buildEnd({ srcDir, outDir }) {
    for (const file of files) copyFileSync(join(srcDir, file), join(outDir, file))
    const dead = deadLinks(outDir)
    if (dead.length > 0) throw new Error(`links that lead nowhere:\n${dead.join('\n')}`)
  },
})
