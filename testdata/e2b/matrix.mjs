// Runs every published package against one platform, side by side, and prints one JSON line per package and mode.
//
//   url   E2B_API_URL, E2B_SANDBOX_URL, E2B_API_KEY: addressing by headers. SDKs before 2.9 cannot.
//   host  E2B_DOMAIN, E2B_API_KEY: addressing by host name over TLS; names resolve to MATRIX_ADDRESS.
//
// Modes whose variables are absent are left out. `node matrix.mjs --markdown FILE…` turns such lines into the table of
// docs/compatibility.md instead.
import { spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'

const here = new URL('.', import.meta.url)
const { dependencies } = JSON.parse(readFileSync(new URL('package.json', here)))
const sdks = Object.keys(dependencies).filter((name) => name.startsWith('e2b-'))
const newest = sdks.at(-1)
const withoutURL = new Set(['e2b-1', 'e2b-2.4'])

if (process.argv[2] === '--markdown') {
  const { table } = await import('./table.mjs')
  process.stdout.write(table(process.argv.slice(3).flatMap((f) => readFileSync(f, 'utf8').trim().split('\n').map(JSON.parse))))
  process.exit(0)
}

const { E2B_API_URL, E2B_SANDBOX_URL, E2B_DOMAIN, E2B_API_KEY, ...rest } = process.env
if (!E2B_API_KEY) {
  console.error('E2B_API_KEY is not set: source the client.env that the controller wrote, then run again')
  process.exit(2)
}

// environment is what one program sees: the variables of its mode alone.
const environment = (mode) => ({
  ...rest,
  E2B_API_KEY: E2B_API_KEY.replace(/^agbx_/, 'e2b_'), // several releases refuse every other prefix before they send anything
  ...(mode === 'url' ? { E2B_API_URL, E2B_SANDBOX_URL } : { E2B_DOMAIN, MATRIX_DOMAIN: E2B_DOMAIN.replace(/:\d+$/, '') }),
})

const jobs = []
for (const name of sdks) {
  const parallel = name === newest ? (process.env.MATRIX_PARALLEL ?? '50') : '5'
  if (E2B_API_URL && E2B_SANDBOX_URL && !withoutURL.has(name)) jobs.push({ args: ['run.mjs', name, 'url'], mode: 'url', parallel, thorough: name === newest })
  if (E2B_DOMAIN) jobs.push({ args: ['run.mjs', name, 'host'], mode: 'host', parallel: '5' })
}
if (E2B_API_URL && E2B_SANDBOX_URL) jobs.push({ args: ['cli.mjs', 'url'], mode: 'url' })

const filter = process.env.MATRIX_JOBS
const wanted = jobs.filter((job) => !filter || job.args.join(' ').includes(filter))

const run = (job) =>
  new Promise((resolve) => {
    const child = spawn(process.execPath, ['--import', './resolver.mjs', ...job.args], {
      cwd: here.pathname,
      env: { ...environment(job.mode), MATRIX_PARALLEL: job.parallel ?? '5', MATRIX_THOROUGH: job.thorough ? '1' : '0' },
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: Number(process.env.MATRIX_JOB_MS ?? 300_000),
      killSignal: 'SIGKILL',
    })
    let out = ''
    let err = ''
    child.stdout.on('data', (d) => (out += d))
    child.stderr.on('data', (d) => (err += d))
    child.on('close', (code, signal) => {
      const line = out.trim().split('\n').at(-1)
      try {
        JSON.parse(line)
        console.log(line)
      } catch {
        const error = `ended with ${signal ?? code} and no result: ${(out + err).slice(-2000)}`
        console.log(JSON.stringify({ package: job.args.join(' '), mode: job.mode, failed: 1, results: { run: { ok: false, error } } }))
      }
      resolve(code === 0)
    })
  })

// Two at a time: enough to mix versions on one platform, few enough for a small machine.
let good = true
const queue = [...wanted]
const worker = async () => {
  for (let job = queue.shift(); job; job = queue.shift()) good = (await run(job)) && good
}
await Promise.all([worker(), worker()])
process.exit(good ? 0 : 1)
