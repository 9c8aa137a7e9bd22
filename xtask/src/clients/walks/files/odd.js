const isOdd = require('is-odd');
module.exports = n => isOdd(n);
if (require.main === module) console.log('odd', isOdd(7));
