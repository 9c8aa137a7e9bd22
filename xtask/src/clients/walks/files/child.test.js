const { execSync } = require('child_process');
test('a child', () => expect(execSync('echo x').toString()).toBe('x\n'));
