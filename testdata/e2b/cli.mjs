// Drives the published E2B command line and prints one JSON line like run.mjs: node cli.mjs <mode>.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'

const mode = process.argv[2]
const root = new URL('./node_modules/@e2b/cli/', import.meta.url)
const { version } = JSON.parse(readFileSync(new URL('package.json', root)))
const program = new URL('dist/index.js', root).pathname
const template = process.env.MATRIX_TEMPLATE ?? 'default'

// Standard input is empty: `sandbox exec` would otherwise wait for its end.
const e2b = (...args) =>
  new Promise((resolve) => {
    const child = spawn(process.execPath, [...process.execArgv, program, ...args], {
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: 60_000,
      killSignal: 'SIGKILL',
    })
    let [stdout, out] = ['', '']
    child.stdout.on('data', (d) => ((stdout += d), (out += d)))
    child.stderr.on('data', (d) => (out += d))
    child.on('close', (code, signal) => resolve({ code: code ?? signal, stdout, out }))
  })
const ok = (result) => {
  assert.equal(result.code, 0, result.out)
  return result
}

let id
const steps = {
  'sandbox create --detach': async () => {
    const { out } = ok(await e2b('sandbox', 'create', template, '--detach'))
    id = out.match(/\b[a-z0-9]{20,}\b/)?.[0]
    assert.ok(id, out)
  },
  'sandbox list': async () => {
    assert.ok(ok(await e2b('sandbox', 'list', '--format', 'json')).stdout.includes(id))
  },
  'sandbox info': async () => {
    assert.ok(ok(await e2b('sandbox', 'info', id)).out.includes(id))
  },
  'sandbox exec': async () => {
    assert.ok(ok(await e2b('sandbox', 'exec', id, 'echo', 'from', 'the', 'cli')).out.includes('from the cli'))
  },
  'sandbox exec, exit code': async () => {
    assert.equal((await e2b('sandbox', 'exec', id, 'exit 7')).code, 7)
  },
  'sandbox metrics': async () => {
    ok(await e2b('sandbox', 'metrics', id))
  },
  'sandbox logs': async () => {
    ok(await e2b('sandbox', 'logs', id))
  },
  'template list': async () => {
    assert.ok(ok(await e2b('template', 'list')).out.includes(template))
  },
  'sandbox kill': async () => {
    ok(await e2b('sandbox', 'kill', id))
    assert.ok(!ok(await e2b('sandbox', 'list', '--format', 'json')).stdout.includes(id))
  },
}

const results = {}
let failed = 0
const perform = async (title) => {
  const begin = performance.now()
  try {
    await steps[title]()
    results[title] = { ok: true }
  } catch (error) {
    failed++
    results[title] = { ok: false, error: String(error?.message ?? error).slice(0, 2000) }
  }
  results[title].ms = Math.round(performance.now() - begin)
}
const [first, ...middle] = Object.keys(steps)
const last = middle.pop()
await perform(first)
for (const title of middle) results[title] = null // keeps the order of the report
await Promise.all(middle.map(perform))
await perform(last)
console.log(JSON.stringify({ package: '@e2b/cli', version, mode, failed, results }))
process.exit(failed === 0 ? 0 : 1)
