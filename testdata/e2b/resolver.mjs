// Loaded before a scenario: makes every name below MATRIX_DOMAIN resolve to MATRIX_ADDRESS, as a wildcard DNS entry
// would. Everything else about the connection (TLS, Host, HTTP) stays as it is.
import dns from 'node:dns'

const domain = process.env.MATRIX_DOMAIN
const address = process.env.MATRIX_ADDRESS ?? '127.0.0.1'
const lookup = dns.lookup

dns.lookup = (hostname, options, callback) => {
  if (typeof options === 'function') [callback, options] = [options, {}]
  if (!domain || (hostname !== domain && !hostname.endsWith('.' + domain))) return lookup(hostname, options, callback)
  const family = address.includes(':') ? 6 : 4
  if (options?.all) return process.nextTick(callback, null, [{ address, family }])
  process.nextTick(callback, null, address, family)
}
