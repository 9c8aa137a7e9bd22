const test = require('node:test');
const assert = require('node:assert');
test('odd', () => assert(require('./odd.js')(3)));
